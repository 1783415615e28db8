"""What Redis does at once for tickets. A ticket's hash: n (samples), owner, work, landed, end, collected, gone."""

STORE = """
local found = redis.call('HMGET', KEYS[1], 'owner', 'gone')
if found[2] or (found[1] and found[1] ~= ARGV[1]) then return 0 end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[6])
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'n', ARGV[2], 'team', ARGV[7], ARGV[3], ARGV[4])
if ARGV[3] == 'end' then redis.call('HDEL', KEYS[1], 'work') end
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1
"""
"""Keys: ticket, owner's sign of life. Arguments: owner, samples, field, value, milliseconds it lives and the sign,
team."""

LOOK = """
local found = redis.call('HMGET', KEYS[1], 'n', 'owner', 'landed', 'gone', 'team')
if ARGV[3] ~= '' and found[5] ~= ARGV[3] then return false end
if not found[1] and not found[4] then return false end
local owner = found[2] or ''
local alive = owner ~= '' and redis.call('GET', ARGV[1] .. owner)
local ended = ''
if ARGV[2] == '1' then
  ended = redis.call('HGET', KEYS[1], 'end') or ''
  if ended ~= '' then redis.pcall('HSET', KEYS[1], 'collected', '1') end
end
return {found[1] or '0', owner, found[3] or '0', found[4] or '', alive and 1 or 0, ended}
"""
"""Key: ticket. Arguments: start of owners' keys, 1 if the end is wanted, the team that asks if there are teams."""

CLAIM = """
local found = redis.call('HMGET', KEYS[1], 'owner', 'gone', 'work')
if not found[1] or found[2] or not found[3] then return false end
if found[1] ~= '' and redis.call('GET', ARGV[1] .. found[1]) then return false end
redis.call('SET', ARGV[1] .. ARGV[2], '1', 'PX', ARGV[4])
redis.call('HSET', KEYS[1], 'owner', ARGV[2], 'landed', '0')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return found[3]
"""
"""Key: ticket. Arguments: start of owners' keys, the new owner, milliseconds it lives, and the owner's sign of life."""

RELEASE = """
if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then redis.call('HSET', KEYS[1], 'owner', '') end
return 1
"""
"""Key: ticket. Argument: owner."""

DELETE = """
if not redis.call('HGET', KEYS[1], 'n') then return 0 end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'gone', '1')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
"""
"""Key: ticket. Argument: milliseconds that it is remembered as deleted."""

BEAT = """
redis.call('SET', KEYS[1], '1', 'PX', ARGV[2])
local said = {}
for place = 2, #KEYS do
  local found = redis.call('HMGET', KEYS[place], 'owner', 'gone', 'collected')
  if found[2] or (found[1] and found[1] ~= ARGV[1]) then
    said[place - 1] = 'lost'
  elseif not found[1] then
    said[place - 1] = 'missing'
  else
    redis.call('HSET', KEYS[place], 'landed', ARGV[place + 1])
    said[place - 1] = found[3] and 'collected' or 'kept'
  end
end
return said
"""
"""Keys: owner's sign of life, tickets. Arguments: owner, milliseconds the sign lives, landed samples of each ticket."""
