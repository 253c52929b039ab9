-- Numbers of one instant; writes nothing.
local failed = load()
if failed then return failed end
local oldest = -1
local function age(of)
  if of[1] then
    local offered
    for at = 1, #of[1][2], 2 do
      if of[1][2][at] == 't' then offered = tonumber(of[1][2][at + 1]) end
    end
    if offered then oldest = math.max(oldest, now - offered) end
  end
end
if ready > 0 then age(redis.call('XRANGE', jobs, '(' .. last_id, '+', 'COUNT', 1)) end
local owed = 0
if ready > 0 and not s.paused then
  local from, rem = s.next, s.rem
  if from < now - s.catch then from, rem = now - s.catch, 0 end
  owed = math.max(0, units(from, rem, now, s.num, s.den) + 1)
end
return { 'ok', int(now), ready, delayed, pending, redis.call('XLEN', dead), overloaded() and 1 or 0, int(oldest), int(owed),
  redis.call('HGETALL', state) }
