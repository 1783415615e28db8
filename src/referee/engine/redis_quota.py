"""The Lua script that shares limits in Redis. Text only; `redis_lease` sends it and reads the answer.

For each endpoint two hashes: the pools (requests and tokens per minute, a pause) and the seats (jobs, and what each
holds). A whole report is handled atomically, by Redis' own clock, so nothing is granted to two jobs.
"""

from __future__ import annotations

SILENT_S = 10.0
"""A job without a report for this long counts as gone. Also the time jobs have, after Redis lost its data, to report
what they hold, before any of them gets a larger share."""
KEEP_S = 120.0
"""The hashes expire this long after the last report."""

LEASE = """
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local me, known, met, back = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1', ARGV[4] == '1'
local silent, kept, width = tonumber(ARGV[5]), ARGV[6], 17

local function divide(limit, wants, turn)
  local count, shares, busy, left = #wants, {}, {}, limit
  for i = 1, count do
    shares[i] = 0
    if wants[i] > 0 then
      busy[#busy + 1] = i
    elseif limit >= 4 * count then
      shares[i] = 1
    end
    left = left - shares[i]
  end
  table.sort(busy, function(a, b) return wants[a] < wants[b] or (wants[a] == wants[b] and a < b) end)
  for at, i in ipairs(busy) do
    shares[i] = math.min(wants[i], math.floor(left / (#busy - at + 1)))
    left = left - shares[i]
  end
  for round = 1, 2 do
    local asking = {}
    for _, i in ipairs(busy) do
      if round == 2 or shares[i] < wants[i] then asking[#asking + 1] = i end
    end
    table.sort(asking, function(a, b) return (a - turn) % count < (b - turn) % count end)
    for at, i in ipairs(asking) do
      local extra = round == 2 and math.ceil(left / (#asking - at + 1)) or math.min(left, 1)
      shares[i] = shares[i] + extra
      left = left - extra
    end
  end
  return shares
end

local out = {}
for e = 1, #KEYS / 2 do
  local pools, seats, base = KEYS[2 * e - 1], KEYS[2 * e], 6 + (e - 1) * width
  local function arg(i) return tonumber(ARGV[base + i]) end

  local ids, held, want, more = {me}, {}, {}, {0, 0}
  local rows = redis.call('HGETALL', seats)
  for i = 1, #rows, 2 do
    local id = rows[i]
    if id ~= me then
      local seen, of, h, w, r, t = string.match(rows[i + 1], '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
      if seen and math.abs(now - seen) <= silent then
        ids[#ids + 1] = id
        if tonumber(of) == arg(1) then held[id], want[id] = tonumber(h), tonumber(w) end
        more[1], more[2] = more[1] + r, more[2] + t
      else
        redis.call('HDEL', seats, id)
      end
    end
  end
  table.sort(ids)
  local rank = 1
  for i, id in ipairs(ids) do if id == me then rank = i end end

  local names = {'rl', 'rt', 'rb', 'tl', 'tt', 'tb', 'pause', 'began', 'expected'}
  local state, values = {}, redis.call('HMGET', pools, unpack(names))
  for i, name in ipairs(names) do state[name] = tonumber(values[i] or nil) end
  if not state.began then state.began, state.expected = now, known end
  local settled = #ids >= (state.expected or 1) or math.abs(now - state.began) > silent

  local limit, share, holding = arg(1), -1, 0
  if limit > 0 then
    holding = math.max(arg(2), arg(3))
    local free = limit
    for id, h in pairs(held) do free = free - h end
    local wanted = holding
    if settled then
      local wants, place = {}, 1
      for _, id in ipairs(ids) do
        if id == me or want[id] then
          wants[#wants + 1] = id == me and arg(4) or want[id]
          if id == me then place = #wants end
        end
      end
      wanted = divide(limit, wants, math.floor(now))[place]
    end
    share = math.max(0, math.min(wanted, free))
    holding = math.max(holding, share)
  end

  local pause = state.pause or 0
  if arg(5) > 0 then pause = math.max(pause, now + arg(5)) end
  if pause > now + 300 then pause = 0 end

  local set = {'pause', string.format('%.6f', pause), 'began', string.format('%.6f', state.began),
    'expected', string.format('%d', state.expected or 1)}
  local function pool(name, at, others)
    local burst, rate, least, most = arg(at), arg(at + 1), arg(at + 2), arg(at + 3)
    local p = {ready = true, least = 0, amount = 0}
    if burst <= 0 then return p end
    local level, last = state[name .. 'l'], state[name .. 't']
    if not level or not last then
      level = met and 0 or burst
    else
      level = math.min(burst, level + math.max(0, now - last) * rate)
    end
    if back then level = math.min(level, 0) end
    level = math.min(burst, level + arg(at + 4))
    local blocked = state[name .. 'b'] or 0
    if arg(at + 5) > 0 then blocked = math.max(blocked, now + arg(at + 5)) end
    if blocked > now + 60 then blocked = 0 end
    p.level, p.blocked, p.least, p.name = level, blocked, least, name
    if least > 0 then
      local needed = math.min(least, burst)
      p.ready = now >= blocked and level >= needed - 0.000001 * math.max(1, needed)
      p.amount = math.max(least, math.min(most, level * most / math.max(most + others, 0.000000001)))
    end
    return p
  end
  local both = {pool('r', 6, more[1]), pool('t', 12, more[2])}
  local ready = both[1].ready and both[2].ready
  for _, p in ipairs(both) do
    if not ready then p.amount = 0 end
    if p.level then
      set[#set + 1], set[#set + 2] = p.name .. 'l', string.format('%.6f', p.level - p.amount)
      set[#set + 1], set[#set + 2] = p.name .. 't', string.format('%.6f', now)
      set[#set + 1], set[#set + 2] = p.name .. 'b', string.format('%.6f', p.blocked)
    end
  end
  redis.call('HSET', pools, unpack(set))
  redis.call('PEXPIRE', pools, kept)
  redis.call('HSET', seats, me, string.format('%.6f %d %d %d %.3f %.3f', now, limit, holding, arg(4), arg(9), arg(15)))
  redis.call('PEXPIRE', seats, kept)
  out[e] = table.concat({share, string.format('%.6f', both[1].amount), string.format('%.6f', both[2].amount),
    string.format('%.6f', math.max(0, pause - now)), #ids, rank - 1}, ' ')
end
return out
"""
"""KEYS pools, seats for each endpoint. ARGV: the job's name, how many jobs it knows of, whether it has been here
before, whether it has just been on its own, SILENT_S, KEEP_S in ms; then for each endpoint: limit (0: not shared; only
jobs with the same number share it), share, in flight, want, pause; and twice, for requests and for tokens: burst (0: no
limit), refill per second, least, most, returned, block. For each endpoint a line: share, requests, tokens, pause, jobs,
rank."""
