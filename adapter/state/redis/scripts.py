"""The steps that the server takes whole: scripts in Lua, with all keys declared and of one partition.

A script that fails in the middle is not undone by Redis. So each first reads and decides, and writes only then; what
could refuse a write (memory, disk, a replica) does so before the first one.
"""

from __future__ import annotations

from hashlib import sha1

EXPIRED = 3600
"""Seconds after their due time in which rows that expire by themselves stay: no clock of a replica is later."""

TOGETHER = 16
"""Expired rows that a write removes: more than it adds, so that they never pile up."""


CELL = """
local function cell_of(rows, key)
  local cell = redis.call('HGET', rows, key)
  local version, due, from = string.match(cell or '', '^([1-9]%d*) ([-%d.e+inf]+) ()')
  if not version or due ~= '-' and not tonumber(due) then return 0 end
  return tonumber(version), due, cell, from
end
"""
"""The version of a row, its due time, its cell and where the value begins in it.

Version 0 and nothing else where there is no row, or bytes that are no row's.
"""


class ServerScript:
    """A script and the digest by which a server that has seen it finds it."""

    def __init__(self, source: str) -> None:
        self.source = source.encode()
        self.digest = sha1(self.source, usedforsecurity=False).hexdigest().encode()


COMMIT = ServerScript(
    CELL
    + """
-- KEYS: the channel, then rows, keys and dues of each table.
-- ARGV: the word for others, the place of the rows of a table that expires by itself or nothing, then for each change:
-- place of its table's rows in KEYS, kind, key, value, due, expected version, most rows of the group. Kinds: p put,
-- d delete, g delete if it is there.
-- Returns for each change the version written, or the number of rows deleted; or a text: a conflict.
local now, made, done = {}, {}, {}
local function version_of(place, key)
  local seen = now[place .. ' ' .. key]
  if seen == nil then
    seen = cell_of(KEYS[place], key)
    now[place .. ' ' .. key] = seen
  end
  return seen
end
local function rows_of_group(place, key)
  local slash = string.find(key, '/', 1, true)
  local group = slash and string.sub(key, 1, slash - 1) or key
  local index = KEYS[place + 1]
  return redis.call('ZLEXCOUNT', index, '[' .. group, '[' .. group)
    + redis.call('ZLEXCOUNT', index, '[' .. group .. '/', '(' .. group .. '0') + (made[place] or 0)
end
for at = 3, #ARGV, 7 do
  local place, kind, key = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2]
  local expected, most = ARGV[at + 5], ARGV[at + 6]
  local version = version_of(place, key)
  local absent = version == 0 and kind ~= 'p'
  if expected ~= '' and (absent and kind == 'd' or not absent and version ~= tonumber(expected)) then
    return 'expected version ' .. expected .. ', found ' .. version
  end
  if kind == 'p' then
    if version == 0 then
      if most ~= '' and rows_of_group(place, key) >= tonumber(most) then return 'full' end
      made[place] = (made[place] or 0) + 1
    end
    now[place .. ' ' .. key] = version + 1
    done[#done + 1] = version + 1
  else
    if version > 0 then made[place] = (made[place] or 0) - 1 end
    now[place .. ' ' .. key] = 0
    done[#done + 1] = version > 0 and 1 or 0
  end
end
local changed = false
for at = 3, #ARGV, 7 do
  local place, key = tonumber(ARGV[at]), ARGV[at + 2]
  local rows, keys, dues = KEYS[place], KEYS[place + 1], KEYS[place + 2]
  if ARGV[at + 1] == 'p' then
    local due, version = ARGV[at + 4], done[(at - 3) / 7 + 1]
    local cell = string.format('%d ', version) .. (due == '' and '-' or due) .. ' ' .. ARGV[at + 3]
    -- Version 1 may take the place of bytes that are no row's, where a row was before with a due time of its own.
    local is_new = redis.call('HSET', rows, key, cell) == 1
    if version == 1 then redis.call('ZADD', keys, 0, key) end
    if due ~= '' then redis.call('ZADD', dues, due, key)
    elseif not is_new then redis.call('ZREM', dues, key) end
    changed = true
  elseif redis.call('HDEL', rows, key) == 1 then
    redis.call('ZREM', keys, key)
    redis.call('ZREM', dues, key)
    changed = true
  end
end
if changed then redis.call('SPUBLISH', KEYS[1], ARGV[1]) end
if ARGV[2] ~= '' then
  local place = tonumber(ARGV[2])
  local rows, keys, dues = KEYS[place], KEYS[place + 1], KEYS[place + 2]
  local before = redis.call('TIME')[1] - EXPIRED
  for _, key in ipairs(redis.call('ZRANGE', dues, '-inf', before, 'BYSCORE', 'LIMIT', 0, TOGETHER)) do
    redis.call('HDEL', rows, key)
    redis.call('ZREM', keys, key)
    redis.call('ZREM', dues, key)
  end
end
return done
""".replace("EXPIRED", str(EXPIRED)).replace("TOGETHER", str(TOGETHER))
)

TOUCH = ServerScript(
    CELL
    + """
-- KEYS: rows and dues of a table. ARGV: key and due time of each row.
for at = 1, #ARGV, 2 do
  local key, due = ARGV[at], ARGV[at + 1]
  local version, before, cell, from = cell_of(KEYS[1], key)
  if version > 0 and (before == '-' or tonumber(before) < tonumber(due)) then
    redis.call('HSET', KEYS[1], key, string.format('%d ', version) .. due .. ' ' .. string.sub(cell, from))
    redis.call('ZADD', KEYS[2], due, key)
  end
end
return 0
"""
)

SCAN = ServerScript("""
-- KEYS: rows and keys of a table. ARGV: most rows, then low and high end of each range, in order.
-- Returns their keys, and their cells.
local names, cells = {}, {}
local most = tonumber(ARGV[1])
for at = 2, #ARGV, 2 do
  local found = redis.call('ZRANGE', KEYS[2], ARGV[at], ARGV[at + 1], 'BYLEX', 'LIMIT', 0, most - #names)
  for _, name in ipairs(found) do
    names[#names + 1] = name
    cells[#names] = redis.call('HGET', KEYS[1], name)
  end
  if #names >= most then break end
end
return {names, cells}
""")

OVERDUE = ServerScript("""
-- KEYS: rows and dues of a table. ARGV: latest due time, rows to pass over, most rows.
-- Returns their keys, and their cells.
local cells = {}
local names = redis.call('ZRANGE', KEYS[2], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', ARGV[2], ARGV[3])
for place, name in ipairs(names) do cells[place] = redis.call('HGET', KEYS[1], name) end
return {names, cells}
""")

SPEND = ServerScript("""
-- KEYS: the list of moments. ARGV: most moments, and their window in microseconds.
-- Returns the microseconds until a moment can be counted, 0 if this one was.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local most, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local last = redis.call('LINDEX', KEYS[1], 0)
-- A moment that is still to come was written before the clock was put back.
if last and tonumber(last) > now then redis.call('DEL', KEYS[1]) end
local first = redis.call('LINDEX', KEYS[1], most - 1)
if first and now - tonumber(first) < window then return tonumber(first) + window - now end
redis.call('LPUSH', KEYS[1], string.format('%d', now))
redis.call('LTRIM', KEYS[1], 0, most - 1)
redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
return 0
""")
