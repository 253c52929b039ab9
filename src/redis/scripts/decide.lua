-- One decision about all levels of a charge: every level is read and judged, then all are charged or none.
--
-- The text is put together from the parts of each level's rule. In a part, `@` ends the names that belong to its level,
-- `$key` is the level's key and `$1`, `$2`, .. are its arguments. All numbers are whole, below 2^53, in microseconds or
-- units. They come in one argument and leave in one reply, packed as little-endian doubles: a server spends more on
-- taking in an argument, or a number of a reply, than on adding it. A reply is: how many of the `n` charges fit, the
-- time, and what each level held before them.
--
-- Everything is read before anything is written, so a script that fails has written nothing.
--- first
local call = redis.call
--- head
local k = n
--- middle
if k > 0 then
--- between
elseif n > 0 then
--- tail
end
return struct.pack('<$doubles', k, now, $reply)
--- done
return 1
--- many
-- Several decisions in one call, each judged by itself in the order of the arguments; what fails has written nothing,
-- and is told by its index beside the others' replies.
local packed, failed = {}, {}
for index = 0, #KEYS / $levels - 1 do
  local fine, reply = pcall(one, index * $levels, index * $width + 1)
  if not fine or type(reply) ~= 'string' then
    -- Some servers raise a table, others its text.
    local why = type(reply) == 'table' and reply.err or tostring(reply)
    if string.find(why, 'READONLY', 1, true) then
      return redis.error_reply(why)
    end
    failed[#failed + 1], failed[#failed + 2] = index, why
    reply = string.rep('\0', $length)
  end
  packed[index + 1] = reply
end
return { table.concat(packed), unpack(failed) }
--- clock
local clock = call('TIME')
local now, slack = clock[1] * 1000000 + clock[2], 0
--- given
local now, slack = given, 3600000
