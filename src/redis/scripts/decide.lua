-- One decision about all levels of a charge: every level is read and judged, then all are charged or none.
--
-- The text is put together from the parts of each level's rule. In a part, `@` ends the names that belong to its level,
-- `$key` is the level's key and `$1`, `$2`, .. are its arguments. All numbers are whole, below 2^53, in microseconds or
-- units. A reply is: how many of the `n` charges fit, the time, and what each level held before them.
--
-- Everything is read before anything is written, so a script that fails has written nothing.
--- head
local n = ARGV[1] + 0
$now
local k = n
--- middle
if k > 0 then
--- between
elseif n > 0 then
--- tail
end
return { k, now, $reply }
--- refund
$now
--- done
return 1
--- clock
local clock = redis.call('TIME')
local now, slack = clock[1] * 1000000 + clock[2], 0
--- given
local now, slack = ARGV[$given] + 0, 3600000
