-- Ends a delivery, by whoever still holds it.
-- ARGV  consumer, id, token, how (`ack`, `fail`, `retry`, `defer`), delay in us, cause or '',
--       `again` if an earlier call may have done it, headers in place of the job's or ''
local failed = load()
if failed then return failed end
local consumer, id, token, how, delay, cause = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), ARGV[6]
if not held(id, consumer, token) then
  local there = redis.call('XRANGE', jobs, id, id)[1] and 1 or 0
  if ARGV[7] ~= 'again' then count('fenced') end
  return { 'fenced', there }
end
local flat = redis.call('XRANGE', jobs, id, id)[1]
if how == 'ack' or not flat then
  remove(id)
  count(flat and 'acked' or 'vanished')
  return { flat and 'acked' or 'vanished', '0' }
end
local job = fields_of(flat[2])
local attempts = job.n + token
if cause ~= '' then job.e = cause end
if ARGV[8] ~= '' then job.m = ARGV[8] end
remove(id)
if job.x and how == 'fail' then
  -- A letter that is refused again goes to the end of the letters, as it is.
  write(dead, job)
  return { 'buried', int(attempts) }
end
if how == 'fail' or (how == 'retry' and s.attempts > 0 and attempts >= s.attempts) then
  bury(job, 'failed', attempts)
  return { 'buried', int(attempts) }
end
if not job.x then job.n = how == 'defer' and attempts - 1 or attempts end
count(how == 'defer' and 'deferred' or 'retried')
if delay <= 0 then
  if ready == 0 then forgive(now) end
  write(jobs, job)
else
  -- The entry's id is unique and new with every entry, so it names the delayed job.
  redis.call('HSET', parked, id, cmsgpack.pack(job))
  redis.call('ZADD', later, int(now + delay), id)
end
depth = depth + 1
mark()
return { 'back', int(attempts) }
