-- Fixed window: so many per window.
--
-- State: `end used`, the end of the window and the units charged in it. An end further ahead than a window was stored
-- under a longer one, or before the clock was set back.
--
-- Arguments: 1 cost, 2 limit, 3 window, 4 offset of windows on the clock, or -1
--- read
local close@, used@, bad@ = 0, 0, false
local raw@ = call('GET', $key)
if raw@ then
  local close, used = string.match(raw@, '^(%d+) (%d+)$')
  if not close then
    return redis.error_reply('STRANGE state of a fixed window')
  end
  close@, used@ = close + 0, used + 0
  if now >= close@ then
    used@ = 0
  elseif used@ > 0 and close@ - now > $3 then
    bad@ = true
  end
end
if used@ == 0 or bad@ then
  local window, offset = $3, $4
  close@ = now + window
  if offset >= 0 then
    local passed = math.fmod(now - offset, window)
    if passed < 0 then
      passed = passed + window
    end
    close@ = close@ - passed
  end
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
call('SET', $key, string.format('%.0f %.0f', close@, used@ + k * $1),
  'PX', math.ceil((close@ - now) / 1000) + slack)
--- repair
if bad@ then
  call('SET', $key, string.format('%.0f %.0f', close@, used@),
    'PX', math.ceil((close@ - now) / 1000) + slack)
end
--- reply
close@, used@
--- refund
-- Arguments: 1 cost, 2 window, 3 instant of the charge
do
  local raw = call('GET', $key)
  if raw then
    local close, used = string.match(raw, '^(%d+) (%d+)$')
    if not close then
      return redis.error_reply('STRANGE state of a fixed window')
    end
    close, used = close + 0, used + 0
    local charged = $3
    if now < close and charged < close and close - charged <= $2 then
      used = used - $1
      if used > 0 then
        call('SET', $key, string.format('%.0f %.0f', close, used), 'KEEPTTL')
      else
        call('DEL', $key)
      end
    end
  end
end
