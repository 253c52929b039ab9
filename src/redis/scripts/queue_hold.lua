-- Says that jobs are still being worked on; answers for each whether it is still held.
-- ARGV  consumer, then pairs of id and token
local failed = load()
if failed then return failed end
local answers = { 'ok' }
for at = 2, #ARGV, 2 do
  local id, token = ARGV[at], tonumber(ARGV[at + 1])
  local mine = held(id, ARGV[1], token)
  -- JUSTID sets the idle time back and leaves the number of deliveries.
  if mine then redis.call('XCLAIM', jobs, GROUP, ARGV[1], 0, id, 'JUSTID') end
  answers[#answers + 1] = mine and 1 or 0
end
return answers
