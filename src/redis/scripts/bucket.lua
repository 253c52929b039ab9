-- Token bucket, and leaky bucket as a meter: the generic cell rate algorithm.
--
-- State: the theoretical arrival time in whole microseconds, or `us:remainder:count` with a remainder over the count.
-- It is a time to come, at most the burst ahead; one further ahead was stored under a larger burst, or before the clock
-- was set back, and counts as the burst.
--
-- Arguments: 1 cost, 2 its remainder, 3 room, 4 its remainder, 5 burst, 6 its remainder, 7 count
--- read
local lead@, rest@, bad@ = 0, 0, false
local raw@ = call('GET', $key)
if raw@ then
  local at = tonumber(raw@)
  if at then
    lead@ = at - now
  else
    local us, rest, of = string.match(raw@, '^(%d+):(%d+):(%d+)$')
    if not us then
      return redis.error_reply('STRANGE state of a bucket')
    end
    lead@, rest@ = us - now, rest + 0
    if of + 0 ~= $7 then
      lead@, rest@ = lead@ + 1, 0
    end
  end
  if lead@ < 0 then
    lead@, rest@ = 0, 0
  else
    local burst, over = $5, $6
    if not (lead@ < burst or (lead@ == burst and rest@ <= over)) then
      lead@, rest@, bad@ = burst, over, true
    end
  end
end
if k == 1 then
  local us, rest = lead@ + $1, rest@ + $2
  if rest >= $7 then
    us, rest = us + 1, rest - $7
  end
  if us > $3 or (us == $3 and rest > $4) then
    k = 0
  end
elseif k > 1 then
  local function fits(j)
    local us, rest = lead@ + j * $1, rest@ + j * $2
    local left = math.fmod(rest, $7)
    us = us + (rest - left) / $7
    return us < $3 or (us == $3 and left <= $4)
  end
  -- The division is off by little; the steps put it right.
  local guess = ($3 - lead@ + ($4 - rest@) / $7) / ($1 + $2 / $7)
  local fit = math.max(0, math.min(k, math.floor(guess)))
  while fit < k and fits(fit + 1) do
    fit = fit + 1
  end
  while fit > 0 and not fits(fit) do
    fit = fit - 1
  end
  k = fit
end
--- charge
do
  local us, rest = lead@ + k * $1, rest@ + k * $2
  if rest >= $7 then
    local left = math.fmod(rest, $7)
    us, rest = us + (rest - left) / $7, left
  end
  local at = now + us
  if rest > 0 then
    at = string.format('%.0f:%.0f:%.0f', at, rest, $7)
  end
  call('SET', $key, at, 'PX', math.ceil((us + 1) / 1000) + slack)
end
--- repair
if bad@ then
  local at = now + lead@
  if rest@ > 0 then
    at = string.format('%.0f:%.0f:%.0f', at, rest@, $7)
  end
  call('SET', $key, at, 'PX', math.ceil((lead@ + 1) / 1000) + slack)
end
--- reply
lead@, rest@
--- refund
-- Arguments: 1 cost, 2 its remainder, 3 burst, 4 its remainder, 5 count, 6 instant of the charge
do
  local raw = call('GET', $key)
  local count, burst, over, charged = $5, $3, $4, $6
  local since = now - charged
  local past = since > burst or (since == burst and over == 0)
  if raw and not past then
    local at, rest = tonumber(raw), 0
    if not at then
      local us, part, of = string.match(raw, '^(%d+):(%d+):(%d+)$')
      if not us then
        return redis.error_reply('STRANGE state of a bucket')
      end
      at, rest = us + 0, part + 0
      if of + 0 ~= $5 then
        at, rest = at + 1, 0
      end
    end
    -- Before its charge the bucket was at most full, so the refund does not reach further back than that.
    local least, part = charged, 0
    if at < charged then
      least, part = at, rest
    end
    at, rest = at - $1, rest - $2
    if rest < 0 then
      at, rest = at - 1, rest + count
    end
    if at < least or (at == least and rest < part) then
      at, rest = least, part
    end
    local lead = at - now
    if lead < 0 or (lead == 0 and rest == 0) then
      call('DEL', $key)
    else
      if rest > 0 then
        at = string.format('%.0f:%.0f:%.0f', at, rest, $5)
      end
      call('SET', $key, at, 'PX', math.ceil((lead + 1) / 1000) + slack)
    end
  end
end
