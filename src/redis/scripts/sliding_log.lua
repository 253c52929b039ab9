-- Sliding log: what was charged when, oldest first.
--
-- State: a string of big-endian doubles. The first is the sum of all that has been cut off; then each entry is its
-- instant and the sum of everything charged up to it, so that the units between two entries are one subtraction.
-- Entries that have left are cut off when they are the larger half. An entry that has not come yet was stored before
-- the clock was set back, and counts as one of now.
--
-- Arguments: 1 cost, 2 limit, 3 window
--- once
local function log_read(key)
  local length = call('STRLEN', key)
  local log = { key = key, count = (length - 8) / 16, gone = 0, bad = false }
  if length == 0 then
    log.count = 0
    return log
  end
  if length < 24 or length % 16 ~= 8 then
    return nil
  end
  if length <= 4104 then
    log.body = call('GET', key)
  end
  log.gone = struct.unpack('>d', log.body or call('GETRANGE', key, 0, 7))
  return log
end
-- Instant and sum of the entry with this index, counted from 0.
local function log_entry(log, index)
  local from = 8 + 16 * index
  if log.body then
    return struct.unpack('>dd', log.body, from + 1)
  end
  return struct.unpack('>dd', call('GETRANGE', log.key, from, from + 15))
end
-- First entry from `low` on whose instant is after `at` and whose sum is at least `sum`; the count if there is none.
local function log_find(log, low, at, sum)
  local high = log.count
  while low < high do
    local middle = math.floor((low + high) / 2)
    local instant, total = log_entry(log, middle)
    if instant > at and total >= sum then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end
-- Lets entries that have not come yet count as ones of now.
local function log_repair(log, now)
  log.body = log.body or call('GET', log.key)
  local from = log_find(log, 0, now, 0)
  local _, total = log_entry(log, log.count - 1)
  local kept = string.sub(log.body, 1, 8 + 16 * from)
  log.body, log.count, log.bad = kept .. struct.pack('>dd', now, total), from + 1, true
end
-- Sums from the entry with this index on, less what they all share.
local function log_shifted(log, from, less)
  local parts = {}
  for index = from, log.count - 1 do
    local at, total = log_entry(log, index)
    parts[#parts + 1] = struct.pack('>dd', at, total - less)
  end
  return table.concat(parts)
end
--- read
local log@ = log_read($key)
if not log@ then
  return redis.error_reply('STRANGE state of a sliding log')
end
-- Kept in the table, because a function has no more than 200 names: the first entry still in sight, and the sum before it.
log@.first, log@.before = 0, log@.gone
local last@, sum@, used@ = 0, log@.gone, 0
if log@.count > 0 then
  last@, sum@ = log_entry(log@, log@.count - 1)
  if last@ > now then
    log_repair(log@, now)
    last@ = now
  end
  local oldest = log_entry(log@, 0)
  if oldest <= now - $3 then
    log@.first = log_find(log@, 1, now - $3, 0)
    local _
    _, log@.before = log_entry(log@, log@.first - 1)
  end
  used@ = sum@ - log@.before
end
if k > 0 then
  local left = $2 - used@
  if $1 > left then
    k = 0
  elseif k > 1 then
    k = math.min(k, math.floor(left / $1))
  end
end
--- charge
do
  local ttl = math.ceil($3 / 1000) + slack
  local entry = struct.pack('>dd', now, sum@ + k * $1)
  local log, kept = log@, log@.count
  if kept > 0 and last@ == now and log@.first < kept then
    kept = kept - 1
  end
  if log@.first == log.count then
    call('SET', $key, struct.pack('>ddd', 0, now, k * $1), 'PX', ttl)
  elseif log.bad or (log@.first >= 32 and log@.first * 2 >= log.count) or sum@ > 2251799813685248 then
    log.body = log.body or call('GET', $key)
    log.count = kept
    local body = log_shifted(log, log@.first, log@.before)
    entry = struct.pack('>dd', now, used@ + k * $1)
    call('SET', $key, struct.pack('>d', 0) .. body .. entry, 'PX', ttl)
  elseif kept < log.count then
    call('SETRANGE', $key, 8 + 16 * kept, entry)
    call('PEXPIRE', $key, ttl)
  else
    call('APPEND', $key, entry)
    call('PEXPIRE', $key, ttl)
  end
end
--- repair
if log@.bad then
  call('SET', $key, log@.body, 'PX', math.ceil($3 / 1000) + slack)
end
--- answer
-- When enough for one more charge, and for one more unit, has left; 0 if that is not asked.
local retry@, unit@ = 0, 0
do
  local used, cost, limit = used@ + k * $1, $1, $2
  local function free(missing)
    local index = log_find(log@, log@.first, now - $3, log@.before + missing)
    if index < log@.count then
      return (log_entry(log@, index))
    end
    return now
  end
  if cost > 0 and (k < n or n == 0) and used + cost > limit then
    retry@ = free(used + cost - limit)
  end
  -- A look charges nothing, and tells what a charge that fits would leave.
  if n == 0 and used + cost <= limit then
    used = used + cost
  end
  if used >= limit then
    unit@ = free(used - limit + 1)
  end
end
--- reply
used@, last@, retry@, unit@
--- refund
-- Arguments: 1 cost, 2 window, 3 instant of the charge
do
  local log, charged = log_read($key), $3
  if not log then
    return redis.error_reply('STRANGE state of a sliding log')
  end
  local index = log_find(log, 0, charged - 0.5, 0)
  if index < log.count and log_entry(log, index) == charged then
    local before = log.gone
    local _, total = log_entry(log, index)
    if index > 0 then
      _, before = log_entry(log, index - 1)
    end
    local back = math.min(total - before, $1)
    log.body = log.body or call('GET', $key)
    local from = index
    if back == total - before then
      from = index + 1
    end
    local body = string.sub(log.body, 1, 8 + 16 * index) .. log_shifted(log, from, back)
    if #body > 8 then
      call('SET', $key, body, 'KEEPTTL')
    else
      call('DEL', $key)
    end
  end
end
