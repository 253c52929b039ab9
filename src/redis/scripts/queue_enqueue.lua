-- Takes a job in, or refuses it and writes nothing.
-- KEYS  6 the id's key, if the caller gave an id
-- ARGV  payload, id or '', how long the id is remembered in ms, `try` or `wait`, headers or ''
local failed = load()
if failed then return failed end
local ids = KEYS[6]
if ids then
  local before = redis.call('GET', ids)
  if before then return { 'twice', depth, s.max, pressure(), wait_for(ready), before } end
end
local function refuse(why, retry) return { why, depth, s.max, pressure(), retry, math.max(1, math.ceil(s.num / s.den)) } end
if s.closed == 1 then return refuse('closed', -1) end
local high = s.high
local room = ARGV[4] == 'wait' and depth + 1 <= high or ARGV[4] ~= 'wait' and not overloaded()
if depth + 1 > s.max or not room then
  if s.paused then return refuse('paused', -1) end
  local down_to = ARGV[4] == 'wait' and high - 1 or s.low
  return refuse(depth + 1 > s.max and 'full' or 'overloaded', wait_for(depth - down_to) + s.grain)
end
local wait = wait_for(ready)
local patience = s.patience
if patience > 0 and wait + s.grain > patience then
  return refuse('late', wait + s.grain - patience)
end
if ready == 0 then forgive(now) end
local id = write(jobs, { p = ARGV[1], n = 0, t = now, i = ARGV[2], m = ARGV[5] })
if ids then redis.call('SET', ids, id, 'PX', ARGV[3]) end
count('admitted')
depth, ready = depth + 1, ready + 1
mark()
return { 'ok', depth, s.max, pressure(), wait, id }
