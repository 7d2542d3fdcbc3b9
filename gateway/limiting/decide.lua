-- Decide all limits of one request at once: look at every counter, and charge them all only if none refuses.
--
-- KEYS: one counter each, all in one hash slot. ARGV: "1" to charge or "0" to look; the request's lease; how long a lease
-- lasts in microseconds; then for each key: strategy, amount, window in microseconds, cost, "1" if it is a dry run.
-- Returns {charged, healed, refused, remaining, wait, refused, remaining, wait, ...}; a wait is in microseconds, -1 for
-- never. The arithmetic is that of counting.py. The clock is Redis's own, so that the callers' clocks do not matter.
-- Needs Redis 5 (scripts are replicated by their effects). A value that cannot be one of ours is removed and counted as
-- healed: no caller is ever locked out by a broken key.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local commit, lease, lease_us = ARGV[1] == '1', ARGV[2], tonumber(ARGV[3])
local NEVER, SLACK, PACKED = -1, 1e-6, '>ddd'
local BYTES = struct.size(PACKED)
local healed = 0

local function drop(key)
  redis.call('DEL', key)
  healed = healed + 1
end

local function holds(key, want)
  local kind = redis.call('TYPE', key).ok
  if kind == want then return true end
  if kind ~= 'none' then drop(key) end
  return false
end

local function milliseconds(us)
  return string.format('%d', math.max(1, math.ceil(us / 1000)))
end

-- A moving window is a list of (time, sum of costs before it, sum with it), oldest first: the sum within the window is the
-- difference of its two ends, and what must expire before a cost fits is found by halving. One entry for each charge.
local moving = {}

function moving.entry(c, at)
  return struct.unpack(PACKED, redis.call('LINDEX', c.key, at))
end

-- Return the lowest index from `low` on for which `is_past(time, sum)` holds; `count` if there is none.
function moving.find(c, low, is_past)
  local high = c.count
  while low < high do
    local middle = math.floor((low + high) / 2)
    local at, _, sum = moving.entry(c, middle)
    if is_past(at, sum) then high = middle else low = middle + 1 end
  end
  return low
end

function moving.read(c)
  c.count, c.first, c.used, c.base, c.sum, c.latest = 0, 0, 0, 0, 0, 0
  if not holds(c.key, 'list') then return end
  if #redis.call('LINDEX', c.key, 0) ~= BYTES or #redis.call('LINDEX', c.key, -1) ~= BYTES then return drop(c.key) end
  local latest, _, sum = moving.entry(c, -1)
  if latest > now + c.window then return drop(c.key) end -- written by a clock that was far ahead
  c.count, c.sum, c.latest = redis.call('LLEN', c.key), sum, latest
  c.oldest, c.base = moving.entry(c, 0)
  if c.oldest <= now - c.window then
    c.first = moving.find(c, 1, function(at) return at > now - c.window end)
    if c.first < c.count then c.oldest, c.base = moving.entry(c, c.first) end
  end
  if c.first < c.count then c.used = sum - c.base end
end

function moving.look(c)
  moving.read(c)
  c.remaining = math.max(0, c.amount - c.used)
  c.refused = c.used + c.cost > c.amount
  if not c.refused then
    c.wait = (c.used > 0 and c.oldest or now) + c.window - now
  elseif c.cost > c.amount then
    c.wait = NEVER
  else
    local enough = c.base + c.used + c.cost - c.amount
    local at = moving.entry(c, moving.find(c, c.first, function(_, sum) return sum >= enough end))
    c.wait = at + c.window - now
  end
end

function moving.charge(c)
  if c.first >= c.count then
    redis.call('DEL', c.key)
    c.sum = 0
  elseif c.first > 0 then
    redis.call('LTRIM', c.key, c.first, -1)
  end
  local at = math.max(now, c.latest) -- times never go back, whatever the server's clock does
  redis.call('RPUSH', c.key, struct.pack(PACKED, at, c.sum, c.sum + c.cost))
  redis.call('PEXPIRE', c.key, milliseconds(at + c.window - now))
end

-- A fixed window and a sliding counter are one string: the window's index, its sum, the sum of the window before it.
local windows = {}

function windows.look(c)
  local index, current, previous = math.floor(now / c.window), 0, 0
  if holds(c.key, 'string') then
    local raw = redis.call('GET', c.key)
    if #raw == BYTES then
      local stored, sum, before = struct.unpack(PACKED, raw)
      if stored == index then current, previous = sum, before elseif stored == index - 1 then previous = sum end
    else
      drop(c.key)
    end
  end
  local left = c.window - now % c.window
  local weight = c.strategy == 'fixed-window' and 0 or previous * left / c.window
  c.index, c.current, c.previous, c.left = index, current, previous, left
  c.remaining = math.max(0, math.floor(c.amount - current - weight + SLACK))
  c.refused = current + weight + c.cost > c.amount + SLACK
  local free = c.amount - c.cost - current
  if c.refused and c.cost > c.amount then
    c.wait = NEVER
  elseif not c.refused or c.strategy == 'fixed-window' then
    c.wait = left
  elseif free >= 0 then
    c.wait = left - math.floor(c.window * free / previous)
  else
    c.wait = left + c.window - math.floor(c.window * math.min(1, (c.amount - c.cost) / current))
  end
end

function windows.charge(c)
  local ends = c.strategy == 'fixed-window' and c.left or c.left + c.window
  local packed = struct.pack(PACKED, c.index, c.current + c.cost, c.previous)
  redis.call('SET', c.key, packed, 'PX', milliseconds(ends))
end

-- Slots are a sorted set of leases by the time at which they end. One that ends later than any lease can is not ours.
local slots = {}

function slots.look(c)
  local used = 0
  if holds(c.key, 'zset') then
    redis.call('ZREMRANGEBYSCORE', c.key, '-inf', now)
    healed = healed + redis.call('ZREMRANGEBYSCORE', c.key, now + 10 * lease_us, '+inf')
    used = redis.call('ZCARD', c.key)
  end
  c.remaining, c.refused, c.wait = math.max(0, c.amount - used), used + c.cost > c.amount, 0
end

function slots.charge(c)
  redis.call('ZADD', c.key, now + lease_us, lease)
  redis.call('PEXPIRE', c.key, milliseconds(lease_us))
end

local keepers = {
  ['moving-window'] = moving, ['fixed-window'] = windows, ['sliding-window-counter'] = windows, ['slots'] = slots
}
local counters, charged = {}, commit
for i, key in ipairs(KEYS) do
  local at = 4 + (i - 1) * 5
  local c = {
    key = key, strategy = ARGV[at], amount = tonumber(ARGV[at + 1]), window = tonumber(ARGV[at + 2]),
    cost = tonumber(ARGV[at + 3])
  }
  keepers[c.strategy].look(c)
  if c.refused and ARGV[at + 4] ~= '1' then charged = false end
  counters[i] = c
end
local answer = {charged and 1 or 0, 0}
for _, c in ipairs(counters) do
  if charged and not c.refused then
    keepers[c.strategy].charge(c)
    c.remaining = c.remaining - c.cost
  end
  answer[#answer + 1] = c.refused and 1 or 0
  answer[#answer + 1] = c.remaining
  answer[#answer + 1] = math.ceil(c.wait)
end
answer[2] = healed
return answer
