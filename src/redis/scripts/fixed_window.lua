-- Fixed window: so many per window.
--
-- State: `end used`, the end of the window and the units charged in it. An end further ahead than a window was stored
-- under a longer one, or before the clock was set back.
--
-- Arguments: 1 cost, 2 limit, 3 window, 4 offset of windows on the clock, or -1
--- read
local close@, used@, bad@, fit@ = 0, 0, false, 0
local raw@ = redis.call('GET', $key)
if raw@ then
  local close, used = string.match(raw@, '^(%d+) (%d+)$')
  if not close then
    return redis.error_reply('STRANGE state of a fixed window')
  end
  close@, used@ = close + 0, used + 0
  if now >= close@ then
    used@ = 0
  elseif used@ > 0 and close@ - now > $3 + 0 then
    bad@ = true
  end
end
if used@ == 0 or bad@ then
  local window, offset = $3 + 0, $4 + 0
  close@ = now + window
  if offset >= 0 then
    local passed = math.fmod(now - offset, window)
    if passed < 0 then
      passed = passed + window
    end
    close@ = close@ - passed
  end
end
if n > 0 then
  local left, cost = $2 - used@, $1 + 0
  if cost <= left then
    fit@ = n == 1 and 1 or math.min(n, math.floor(left / cost))
  end
end
if fit@ < k then
  k = fit@
end
--- charge
redis.call('SET', $key, string.format('%.0f %.0f', close@, used@ + k * $1),
  'PX', math.ceil((close@ - now) / 1000) + slack)
--- repair
if bad@ then
  redis.call('SET', $key, string.format('%.0f %.0f', close@, used@),
    'PX', math.ceil((close@ - now) / 1000) + slack)
end
--- reply
close@, used@
--- refund
-- Arguments: 1 cost, 2 window, 3 instant of the charge
do
  local raw = redis.call('GET', $key)
  if raw then
    local close, used = string.match(raw, '^(%d+) (%d+)$')
    if not close then
      return redis.error_reply('STRANGE state of a fixed window')
    end
    close, used = close + 0, used + 0
    local charged = $3 + 0
    if now < close and charged < close and close - charged <= $2 + 0 then
      used = used - $1
      if used > 0 then
        redis.call('SET', $key, string.format('%.0f %.0f', close, used), 'KEEPTTL')
      else
        redis.call('DEL', $key)
      end
    end
  end
end
