-- What all scripts of the queue share; it is put in front of each of them.
--
-- KEYS  1 state   hash    settings, schedule, counters
--       2 jobs    stream  ready and in flight; group `fleet`; an acknowledged job is deleted
--       3 later   zset    ids of delayed jobs by the instant they are due
--       4 parked  hash    the delayed jobs themselves, packed
--       5 dead    stream  dead letters
-- Fields of a job: p payload, n attempts it had before this entry, t offered at, i its id, m headers, e last cause,
-- h history; of a letter also x exit and d when it died.
-- Instants and spans are whole microseconds of the server's clock. The schedule is exact: an instant is a whole number
-- and a remainder in units of 1/den, and the interval is the fraction num/den. Every number stays below 2^53.
-- Everything is read and computed before the first write: a script that fails has then written nothing.
local state, jobs, later, parked, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local GROUP = 'fleet'
local FIELDS = {
  'v', 'num', 'den', 'pnum', 'pden', 'grain', 'catch', 'low', 'high', 'max', 'flight', 'attempts', 'claim', 'expire',
  'patience', 'letters', 'next', 'rem', 'peak', 'prem', 'seen', 'over', 'closed', 'look', 'swept', 'skew', 'gen',
}
local s, now, ready, pending, delayed, depth, last_id

-- Digits only: tostring() would round to 14 of them.
local function int(x) return string.format('%.0f', x) end
local function count(what, by) redis.call('HINCRBY', state, what, by or 1) end

-- Reads all there is to know; answers why the script cannot go on, or nil.
local function load()
  local raw = redis.call('HMGET', state, unpack(FIELDS))
  s = {}
  for at, field in ipairs(FIELDS) do s[field] = tonumber(raw[at]) end
  if not s.v then return { 'missing' } end
  if s.v ~= 1 then return { 'version', int(s.v) } end
  s.paused = redis.call('HGET', state, 'paused')
  local time = redis.call('TIME')
  -- Tests set `skew` to step the clock.
  now = tonumber(time[1]) * 1000000 + tonumber(time[2]) + (s.skew or 0)
  delayed = redis.call('ZCARD', later)
  redis.call('HLEN', parked)
  redis.call('XLEN', dead)
  local length = redis.call('XLEN', jobs)
  local groups = redis.pcall('XINFO', 'GROUPS', jobs)
  if groups.err then return { 'missing' } end
  for _, group in ipairs(groups) do
    local info = {}
    for at = 1, #group, 2 do info[group[at]] = group[at + 1] end
    if info.name == GROUP then
      pending, last_id = info.pending, info['last-delivered-id']
    end
  end
  if not pending then return { 'missing' } end
  ready = math.max(0, length - pending)
  depth = ready + delayed
  return nil
end

-- `units` intervals of num/den after the instant (at, rem).
local function after(at, rem, units, num, den)
  local total = rem + units * num
  local left = total % den
  return at + (total - left) / den, left
end

-- First whole microsecond that is not before the instant.
local function ceil(at, rem) return rem > 0 and at + 1 or at end

-- Whole intervals that lie between (from, rem) and `to`; below zero if none does.
local function units(from, rem, to, num, den) return math.floor(((to - from) * den - rem) / num) end

-- Time the jobs ahead take from now on, `ahead` of them, as if resumed.
local function wait_for(ahead)
  local first = math.max(0, ceil(s.next, s.rem) - now)
  return first + math.ceil(math.max(0, ahead) * s.num / s.den)
end

-- Idle time earns nothing: the schedule starts anew at `from` if it lies behind it.
local function forgive(from)
  if s.next < from then
    s.next, s.rem = from, 0
    redis.call('HSET', state, 'next', int(from), 'rem', '0')
  end
end

local function overloaded() return (s.over == 1 and depth > s.low) or depth >= s.high end

-- Keeps the hysteresis of the ladder after the depth has changed.
local function mark()
  local over = overloaded() and 1 or 0
  if over ~= (s.over or 0) then
    s.over = over
    redis.call('HSET', state, 'over', int(over))
  end
end

local function pressure()
  if overloaded() then return 2 end
  return 0
end

local function fields_of(flat)
  local job = {}
  for at = 1, #flat, 2 do job[flat[at]] = flat[at + 1] end
  if not job.p then
    -- Somebody else's entry: kept whole, so that its letter shows what it was.
    job.p, job.e, job.alien = cmsgpack.pack(flat), 'the entry is no job: it has no payload', true
  end
  job.n = tonumber(job.n) or 0
  job.t = tonumber(job.t) or now
  return job
end

local function write(to, job)
  local fields = { 'p', job.p, 'n', int(job.n), 't', int(job.t) }
  for _, name in ipairs({ 'i', 'm', 'e', 'h', 'x', 'd' }) do
    if job[name] and job[name] ~= '' then
      fields[#fields + 1] = name
      fields[#fields + 1] = job[name]
    end
  end
  return redis.call('XADD', to, '*', unpack(fields))
end

-- Writes the letter of a job that has left; a full outlet drops it and counts that.
local function bury(job, exit, attempts)
  count('dead_' .. exit)
  if redis.call('XLEN', dead) >= s.letters then
    count('lost')
    return
  end
  job.n, job.x, job.d = attempts, exit, int(now)
  write(dead, job)
end

local function remove(id)
  redis.call('XACK', jobs, GROUP, id)
  redis.call('XDEL', jobs, id)
end

-- Whether this consumer still holds the entry as of the delivery of this number, which is its fencing token.
local function held(id, consumer, token)
  local entry = redis.call('XPENDING', jobs, GROUP, id, id, 1)[1]
  return entry and entry[2] == consumer and entry[4] == token
end
