-- Sliding counter: the current window, and what is still in sight of the one before.
--
-- State: `start previous current`. A start that has not come yet was stored before the clock was set back.
--
-- Arguments: 1 cost, 2 limit, 3 window, 4 a power of two of which the window's product is at most 2^52
--- read
local start@, previous@, current@, bad@ = now, 0, 0, false
local raw@ = call('GET', $key)
if raw@ then
  local start, previous, current = string.match(raw@, '^(%d+) (%d+) (%d+)$')
  if not start then
    return redis.error_reply('STRANGE state of a sliding counter')
  end
  start@, previous@, current@ = start + 0, previous + 0, current + 0
  local window, passed = $3, now - start@
  if passed < 0 then
    start@, bad@ = now, true
  elseif passed >= 2 * window then
    previous@, current@ = 0, 0
  elseif passed >= window then
    start@, previous@, current@ = start@ + window, current@, 0
  end
  if previous@ + current@ == 0 then
    start@ = now
  end
end
if k > 0 then
  local window, weighted = $3, 0
  if previous@ > 0 then
    -- previous * (window - elapsed) / window, rounded up, digit by digit where the product would not be exact.
    local span, over = start@ + window - now, 0
    if previous@ * window < 9007199254740992 then
      local product = previous@ * span
      over = math.fmod(product, window)
      weighted = (product - over) / window
    else
      local base, digits, rest = $4, {}, previous@
      while rest > 0 do
        local digit = math.fmod(rest, base)
        digits[#digits + 1] = digit
        rest = (rest - digit) / base
      end
      for i = #digits, 1, -1 do
        local product = over * base + digits[i] * span
        over = math.fmod(product, window)
        weighted = weighted * base + (product - over) / window
      end
    end
    if over > 0 then
      weighted = weighted + 1
    end
  end
  local left = $2 - current@ - weighted
  if $1 > left then
    k = 0
  elseif k > 1 then
    k = math.min(k, math.floor(left / $1))
  end
end
--- charge
call('SET', $key, string.format('%.0f %.0f %.0f', start@, previous@, current@ + k * $1),
  'PX', math.ceil((start@ + 2 * $3 - now) / 1000) + slack)
--- repair
if bad@ then
  call('SET', $key, string.format('%.0f %.0f %.0f', start@, previous@, current@),
    'PX', math.ceil((start@ + 2 * $3 - now) / 1000) + slack)
end
--- reply
start@, previous@, current@
--- refund
-- Arguments: 1 cost, 2 window, 3 instant of the charge
do
  local raw = call('GET', $key)
  if raw then
    local start, previous, current = string.match(raw, '^(%d+) (%d+) (%d+)$')
    if not start then
      return redis.error_reply('STRANGE state of a sliding counter')
    end
    start, previous, current = start + 0, previous + 0, current + 0
    local since = $3 - start
    if since >= 0 and since < $2 then
      current = math.max(0, current - $1)
    elseif since < 0 and -since <= $2 then
      previous = math.max(0, previous - $1)
    end
    if previous + current > 0 then
      call('SET', $key, string.format('%.0f %.0f %.0f', start, previous, current), 'KEEPTTL')
    else
      call('DEL', $key)
    end
  end
end
