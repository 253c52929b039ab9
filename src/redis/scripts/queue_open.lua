-- Makes the queue if it is not there, and says how it is set.
-- ARGV  mode (`create`: must agree with what is there, `adopt`: takes what is there, `replace`: sets its own),
--       then pairs of a setting and its value.
local mode = ARGV[1]
redis.call('ZCARD', later)
redis.call('HLEN', parked)
redis.call('XLEN', dead)
redis.call('XLEN', jobs)
local there = redis.call('HGET', state, 'v')
if there and there ~= '1' then return { 'version', there } end
if there and mode == 'create' then
  for at = 2, #ARGV, 2 do
    local stored = redis.call('HGET', state, ARGV[at])
    if stored ~= ARGV[at + 1] then return { 'conflict', ARGV[at], stored or '', ARGV[at + 1] } end
  end
end
local groups = redis.pcall('XINFO', 'GROUPS', jobs)
local found = false
if not groups.err then
  for _, group in ipairs(groups) do found = found or group[2] == GROUP end
end
local time = redis.call('TIME')
now = tonumber(time[1]) * 1000000 + tonumber(time[2]) + (tonumber(redis.call('HGET', state, 'skew')) or 0)
if not found then
  -- From the start: what the stream still has is not done, as an acknowledged job is deleted.
  redis.call('XGROUP', 'CREATE', jobs, GROUP, '0', 'MKSTREAM')
end
if not there then
  redis.call('HSET', state, 'v', '1', 'next', int(now), 'rem', '0', 'peak', '0', 'prem', '0', 'seen', int(now))
end
if not there or mode == 'replace' then
  for at = 2, #ARGV, 2 do redis.call('HSET', state, ARGV[at], ARGV[at + 1]) end
  count('gen')
end
return { 'ok', found and '0' or '1', redis.call('HGETALL', state) }
