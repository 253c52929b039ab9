-- Changes what the whole fleet obeys.
-- ARGV  what: `pause` reason | `resume` | `close` | `reopen` | `set` (pairs of a setting and its value)
--             | `leave` consumer
local failed = load()
if failed then return failed end
local what = ARGV[1]
if what == 'pause' then
  redis.call('HSET', state, 'paused', ARGV[2])
elseif what == 'resume' then
  -- What was owed is forgiven, and what was ahead stays ahead.
  forgive(now)
  redis.call('HDEL', state, 'paused')
elseif what == 'close' then
  redis.call('HSET', state, 'closed', '1')
elseif what == 'reopen' then
  redis.call('HDEL', state, 'closed')
elseif what == 'set' then
  local fresh = {}
  for at = 2, #ARGV, 2 do fresh[ARGV[at]] = tonumber(ARGV[at + 1]) end
  -- Lead and debt keep their number of units.
  local function scale(at, rem, num, den, new_num, new_den)
    return math.floor(now + ((at - now) + rem / den) * (den / num) * (new_num / new_den) + 0.999999)
  end
  if fresh.num and fresh.pnum then
    local owed_from = math.max(s.next, now - s.catch)
    redis.call('HSET', state, 'next', int(scale(owed_from, s.rem, s.num, s.den, fresh.num, fresh.den)), 'rem', '0', 'peak',
      int(scale(math.max(s.peak, now), s.prem, s.pnum, s.pden, fresh.pnum, fresh.pden)), 'prem', '0')
  end
  for at = 2, #ARGV, 2 do redis.call('HSET', state, ARGV[at], ARGV[at + 1]) end
  for field, value in pairs(fresh) do s[field] = value end
  count('gen')
  mark()
elseif what == 'leave' then
  -- A consumer that is deleted takes what it holds along, so it goes only if it holds nothing.
  for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', jobs, GROUP)) do
    local info = {}
    for at = 1, #flat, 2 do info[flat[at]] = flat[at + 1] end
    if info.name == ARGV[2] and info.pending == 0 then redis.call('XGROUP', 'DELCONSUMER', jobs, GROUP, ARGV[2]) end
  end
end
return { 'ok' }
