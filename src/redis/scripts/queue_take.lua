-- Takes the jobs that are due, and advances the schedule by what was really taken.
-- ARGV  consumer, how many are wanted at most
-- Answers { how, now, wait until there may be more, last id delivered, jobs }.
local failed = load()
if failed then return failed end
local consumer, wanted = ARGV[1], tonumber(ARGV[2])
local LOOKS, ROUNDS = 64, 64

-- The server's clock went back: everything that was planned on it goes back by as much.
if now < s.seen then
  local step = s.seen - now
  s.next, s.peak = s.next - step, s.peak - step
  for _, id in ipairs(redis.call('ZRANGE', later, 0, -1)) do redis.call('ZINCRBY', later, int(-step), id) end
  if step > 100000 then
    for _, entry in ipairs(redis.call('XPENDING', jobs, GROUP, '-', '+', math.max(1, pending))) do
      redis.call('XCLAIM', jobs, GROUP, entry[2], 0, entry[1], 'JUSTID')
    end
  end
  s.look, s.swept = 0, now
  redis.call('HSET', state, 'next', int(s.next), 'peak', int(s.peak), 'seen', int(now), 'look', '0', 'swept', int(now))
end

-- Delayed jobs whose time has come go to the end of the line. That line was idle until then.
local due = redis.call('ZRANGEBYSCORE', later, '-inf', int(now), 'LIMIT', 0, 128)
for at, id in ipairs(due) do
  local packed = redis.call('HGET', parked, id)
  if at == 1 and ready == 0 then forgive(math.min(now, tonumber(redis.call('ZSCORE', later, id)))) end
  if packed then
    write(jobs, cmsgpack.unpack(packed))
    ready = ready + 1
  else
    count('vanished')
  end
  redis.call('ZREM', later, id)
  redis.call('HDEL', parked, id)
  delayed = delayed - 1
end
depth = ready + delayed

local function answer(how, wait, taken) return { how, int(now), int(math.max(0, wait)), last_id, taken or {} } end

-- Until the next delayed job is due, or claims are looked for again.
local function pause()
  local wait = 1000000
  local first = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')
  if first[2] then wait = math.min(wait, tonumber(first[2]) - now) end
  if pending > 0 then wait = math.min(wait, (s.look or 0) - now) end
  return math.max(0, wait)
end

if s.paused then return answer('paused', 1000000) end

local next_at, rem = s.next, s.rem
if next_at < now - s.catch then next_at, rem = now - s.catch, 0 end
local peak, prem = s.peak, s.prem
if peak < now then peak, prem = now, 0 end
local may = units(next_at, rem, now, s.num, s.den) + 1
local fast = units(peak, prem, now + s.grain, s.pnum, s.pden) + 1
if may < 1 or fast < 1 then
  -- Nothing to wait for if there is nothing to take.
  local wait = math.max(ceil(next_at, rem), ceil(peak, prem) - s.grain) - now
  if ready == 0 then wait = math.max(wait, pause()) end
  return answer(ready == 0 and pending == 0 and delayed == 0 and s.closed == 1 and 'over' or 'not due', wait)
end
wanted = math.min(wanted, may, fast)
-- A claim takes the place of the start it takes over, so the bound is on what is read anew.
local fresh = s.flight > 0 and s.flight - pending or wanted

local taken = {}
local function hand_out(id, job, deliveries)
  taken[#taken + 1] = { id, job.p, deliveries, job.n + deliveries, int(job.t), job.i or '', job.e or '', job.h or '', job.m or '',
    job.x or '', job.d or '' }
end

-- What a dead consumer held: to another one, or out if it was started too often.
if pending > 0 and now >= (s.look or 0) then
  -- Idle times are cut to milliseconds: one more, so that none is claimed early.
  local found = redis.call('XPENDING', jobs, GROUP, 'IDLE', s.claim + 1, '-', '+', LOOKS)
  local left = #found == LOOKS
  for _, entry in ipairs(found) do
    local id, deliveries = entry[1], entry[4]
    local flat = redis.call('XRANGE', jobs, id, id)[1]
    if not flat then
      redis.call('XACK', jobs, GROUP, id)
      count('vanished')
    else
      local job = fields_of(flat[2])
      if s.attempts > 0 and job.n + deliveries >= s.attempts then
        remove(id)
        bury(job, 'abandoned', job.n + deliveries)
      elseif #taken < wanted then
        redis.call('XCLAIM', jobs, GROUP, consumer, s.claim, id)
        count('redelivered')
        hand_out(id, job, deliveries + 1)
      else
        left = true
      end
    end
  end
  s.look = left and now or now + math.min(1000000, math.max(1000, s.claim * 50))
  redis.call('HSET', state, 'look', int(s.look))
end

local claimed, rounds = #taken, 0
while #taken < wanted and #taken - claimed < fresh and ready > 0 and rounds < ROUNDS do
  rounds = rounds + 1
  local read = redis.call('XREADGROUP', 'GROUP', GROUP, consumer, 'COUNT', math.min(wanted - #taken, fresh - (#taken - claimed)),
    'STREAMS', jobs, '>')
  if not read then break end
  for _, entry in ipairs(read[1][2]) do
    local id, job = entry[1], fields_of(entry[2])
    ready = ready - 1
    last_id = id
    if job.alien then
      count('admitted')
      remove(id)
      bury(job, 'failed', 0)
    elseif s.expire > 0 and job.n == 0 and now > job.t + s.expire then
      remove(id)
      bury(job, 'expired', 0)
    else
      hand_out(id, job, 1)
    end
  end
end
depth = math.max(0, ready) + delayed
mark()

-- Names of consumers that are long gone.
if now > (s.swept or 0) + 60000000 then
  redis.call('HSET', state, 'swept', int(now))
  for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', jobs, GROUP)) do
    local info = {}
    for at = 1, #flat, 2 do info[flat[at]] = flat[at + 1] end
    if info.pending == 0 and info.idle > 600000 and info.idle > 10 * s.claim then
      redis.call('XGROUP', 'DELCONSUMER', jobs, GROUP, info.name)
    end
  end
end

if #taken == 0 then
  if ready <= 0 then
    local over = pending == 0 and delayed == 0 and s.closed == 1
    return answer(over and 'over' or 'empty', pause())
  end
  return answer(fresh <= 0 and 'held' or 'not due', 0)
end
next_at, rem = after(next_at, rem, #taken, s.num, s.den)
peak, prem = after(peak, prem, #taken, s.pnum, s.pden)
redis.call('HSET', state, 'next', int(next_at), 'rem', int(rem), 'peak', int(peak), 'prem', int(prem), 'seen', int(now))
count('started', #taken)
return answer('ok', math.max(ceil(next_at, rem), ceil(peak, prem) - s.grain) - now, taken)
