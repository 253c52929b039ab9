-- Puts dead letters back into the queue, as far as there is room, or removes them.
-- ARGV  `back` or `remove`, exit or '', first letter, last letter, most, then ids (none: all of that exit)
-- Answers { 'ok', moved, where to go on or '' }.
local failed = load()
if failed then return failed end
local back, exit, from, most = ARGV[1] == 'back', ARGV[2], ARGV[3], tonumber(ARGV[5])
local letters = {}
local go_on = ''
if #ARGV > 5 then
  for at = 6, #ARGV do
    local letter = redis.call('XRANGE', dead, ARGV[at], ARGV[at])[1]
    if letter then letters[#letters + 1] = letter end
  end
else
  letters = redis.call('XRANGE', dead, from, ARGV[4], 'COUNT', most)
  if #letters == most then go_on = '(' .. letters[most][1] end
end
local moved, how = 0, 'ok'
for _, letter in ipairs(letters) do
  local job = fields_of(letter[2])
  if exit == '' or job.x == exit then
    if back then
      if s.closed == 1 or depth + 1 > s.max then
        how, go_on = s.closed == 1 and 'closed' or 'full', ''
        break
      end
      -- Its history tells how it died before; its attempts begin anew.
      local past = job.h ~= '' and job.h and cjson.decode(job.h) or {}
      past[#past + 1] = { exit = job.x, died = job.d, attempts = job.n, cause = job.e }
      if ready == 0 then forgive(now) end
      write(jobs, { p = job.p, n = 0, t = now, i = job.i, m = job.m, e = job.e, h = cjson.encode(past) })
      depth, ready = depth + 1, ready + 1
      count('redriven')
    end
    redis.call('XDEL', dead, letter[1])
    moved = moved + 1
  end
end
mark()
return { how, moved, go_on }
