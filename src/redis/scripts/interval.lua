-- A bucket whose unit takes whole microseconds, as most do: its instants have no remainder.
--
-- State: that of `bucket.lua`; a remainder that was left by another rate counts as a microsecond.
--
-- Arguments: 1 cost, 2 room, 3 burst
--- read
local lead@, bad@ = 0, false
local raw@ = call('GET', $key)
if raw@ then
  local at = tonumber(raw@)
  if not at then
    at = string.match(raw@, '^(%d+):%d+:%d+$')
    if not at then
      return redis.error_reply('STRANGE state of a bucket')
    end
    at = at + 1
  end
  if at > now then
    lead@ = at - now
  end
end
-- What fits is not beyond the burst, which is looked at only where it does not.
if lead@ + $1 > $2 then
  k = 0
  if lead@ > $3 then
    lead@, bad@ = $3, true
  end
elseif k > 1 then
  k = math.min(k, math.floor(($2 - lead@) / $1))
end
--- charge
do
  local us = lead@ + k * $1
  call('SET', $key, string.format('%d', now + us), 'PX', string.format('%d', (us + 1000) / 1000 + slack))
end
--- repair
if bad@ then
  call('SET', $key, string.format('%d', now + lead@), 'PX', string.format('%d', (lead@ + 1000) / 1000 + slack))
end
--- reply
lead@
