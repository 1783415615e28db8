"""Lua scripts of the cache in Redis. Text only.

LOOK: for each request its lock, then its value keys. The value that is there; else the lock for us, unless another job
has it. A key of another type counts as absent, and a full memory means no lock; neither may fail the other requests.
"""

from __future__ import annotations

LOOK = """
local lease, width = ARGV[1], tonumber(ARGV[2])
local out, n = {}, 0
for i = 1, #KEYS, width + 1 do
  local code, value = -1, ''
  for j = 1, width do
    local found = redis.pcall('GET', KEYS[i + j])
    if type(found) == 'string' then
      code, value = j, found
      break
    end
  end
  if code < 0 then
    local token = ARGV[3 + (i - 1) / (width + 1)]
    local holder = redis.pcall('GET', KEYS[i])
    if not holder then
      redis.pcall('SET', KEYS[i], token, 'PX', lease)
      code = 0
    elseif type(holder) ~= 'string' or holder == token then
      code = 0
    end
  end
  out[n + 1], out[n + 2], n = code, value, n + 2
end
return out
"""
"""KEYS lock, value, value…, lock, …; ARGV lease in ms, value keys per request, a token per request. For each request
two items: the number of the value key and the value, or 0: it is ours to judge, or -1: another job is judging it."""

RENEW = """
for i = 1, #KEYS do
  local holder = redis.pcall('GET', KEYS[i])
  if holder == ARGV[i + 1] then
    redis.call('PEXPIRE', KEYS[i], ARGV[1])
  elseif not holder then
    redis.pcall('SET', KEYS[i], ARGV[i + 1], 'PX', ARGV[1])
  end
end
return #KEYS
"""
"""KEYS locks; ARGV lease in ms, a token per lock. A lock lost in a restart is taken again."""

RELEASE = """
for i = 1, #KEYS do
  if redis.pcall('GET', KEYS[i]) == ARGV[i] then
    redis.call('DEL', KEYS[i])
  end
end
return #KEYS
"""
"""KEYS locks; ARGV a token per lock. Only our own are released."""
