// The scripts that run inside Redis: each is one atomic step, counts on Redis' own clock, and leaves an expiry on every key.
// KEYS of each: record, fence, lease, pace, pause.

/** A fence further ahead of the store's clock was planted, to use up the numbers up to 2^53. It is ignored. */
export const FENCE_AHEAD_MS = 86_400_000
/** The last fence that was given outlives every record. */
const FENCE_TTL_MS = 30 * 86_400_000

/** A sealed record has 44 KB at most: a longer text was planted, and would fill the memory of every host that reads it. */
const MAX_TEXT_BYTES = 65_536

/**
 * Lua prints large numbers as 1.79e+12, so they are sent as text. A planted key of another type would make every script fail, so
 * it is deleted.
 */
const PREAMBLE = `
local function text(number) return string.format('%.0f', number) end
local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local function ofType(key, command, ...)
  local value = redis.pcall(command, key, ...)
  if type(value) ~= 'table' or not value.err then return value end
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return redis.call(command, key, ...) end
  redis.call('DEL', key)
  return redis.call(command, key, ...)
end
local function isLong(value) return value and #value > ${MAX_TEXT_BYTES} end
local function get(key)
  local value = ofType(key, 'GET')
  return not isLong(value) and value
end
local function possible(fence, now)
  local number = tonumber(fence) or 0
  return number >= 0 and number <= now + ${FENCE_AHEAD_MS} and number or 0
end
local function read(key, now)
  local fields = ofType(key, 'HMGET', 'fence', 'at', 'notBefore', 'box')
  for field = 1, 4 do
    if isLong(fields[field]) then fields = {'0'} end
  end
  local notBefore = math.min(tonumber(fields[3]) or 0, now + ${FENCE_TTL_MS})
  return { fence = possible(fields[1], now), notBefore = notBefore, fields = fields }
end
local function write(key, ttl, fence, at, notBefore, box)
  redis.call('HSET', key, 'fence', fence, 'at', at, 'notBefore', notBefore, 'box', box)
  redis.call('PEXPIRE', key, ttl)
end
local function reply(verdict, now, number, record)
  local fields = record and record.fields or {false, false, false, false}
  return {verdict, text(now), text(number), fields[1], fields[2], fields[3], fields[4]}
end
`

/** The message of a lease that ended without a record. */
export const RELEASED = 'released'
/**
 * ARGV: owner, leaseMs, adoptedFence, highestFence, ignored record, cause, ignored lease, ignored pause, '1' to ignore the pace.
 * The second look at the record and the acquisition of the lease are one step. A fence is a hybrid clock: it keeps rising
 * after a flush or a failover.
 */
export const ACQUIRE = `${PREAMBLE}
local now = clock()
local highest = tonumber(ARGV[4])
local record = read(KEYS[1], now)
local isOperator = ARGV[6] == 'operator'
local counts = record.fence > 0 and record.fence ~= tonumber(ARGV[5])
if counts and record.fence > tonumber(ARGV[3]) and not isOperator then return reply('newer', now, 0, record) end
local holder = get(KEYS[3])
if holder and holder ~= ARGV[1] and holder ~= ARGV[7] then
  local left = redis.call('PTTL', KEYS[3])
  if left < 0 then left = tonumber(ARGV[2]) end
  return {'taken', text(now), text(left), holder}
end
if not isOperator then
  if counts and record.notBefore > now then return reply('held', now, record.notBefore - now, record) end
  local left = redis.call('PTTL', KEYS[5])
  local pause = left > 0 and read(KEYS[5], now)
  if pause and pause.fence > 0 and pause.fence ~= tonumber(ARGV[8]) then return reply('paused', now, left, pause) end
  left = ARGV[6] == 'client' and ARGV[9] ~= '1' and redis.call('PTTL', KEYS[4]) or 0
  if left > 0 then return reply('paced', now, left) end
end
local given = possible(get(KEYS[2]), now)
local fence = math.max(now, given + 1, highest + 1, record.fence + 1)
redis.call('SET', KEYS[2], text(fence), 'PX', ${FENCE_TTL_MS})
redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
return reply('yours', now, fence)
`

/**
 * ARGV: owner, fence, at, notBefore, ttlMs, box, paceMs, channel.
 * Refused if a later fence was given or written: the writer was paused, and its answer is older than the record.
 */
export const PUT = `${PREAMBLE}
local now = clock()
local fence = tonumber(ARGV[2])
local record = read(KEYS[1], now)
local given = possible(get(KEYS[2]), now)
if given > fence or record.fence >= fence then return reply('stale', now, 0, record) end
write(KEYS[1], ARGV[5], ARGV[2], ARGV[3], ARGV[4], ARGV[6])
redis.call('SET', KEYS[2], ARGV[2], 'PX', ${FENCE_TTL_MS})
if get(KEYS[3]) == ARGV[1] then redis.call('DEL', KEYS[3]) end
if tonumber(ARGV[7]) > 0 then redis.call('SET', KEYS[4], '1', 'PX', ARGV[7]) end
local hosts = redis.call('PUBLISH', ARGV[8], table.concat({ARGV[2], text(now), ARGV[3], ARGV[4], ARGV[6]}, ' '))
redis.call('HSET', KEYS[1], 'hosts', hosts)
return reply('stored', now, hosts)
`

/** ARGV: owner, pauseMs, fence, at, notBefore, box, channel. Hosts that wait for the lease are notified. */
export const RELEASE = `${PREAMBLE}
if get(KEYS[3]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[3])
if tonumber(ARGV[2]) > 0 then write(KEYS[5], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]) end
redis.call('PUBLISH', ARGV[7], '${RELEASED}')
return 1
`

/** ARGV: fence, at, notBefore, ttlMs, box. The newest record wins. */
export const RESTORE = `${PREAMBLE}
local now = clock()
local fence = tonumber(ARGV[1])
if read(KEYS[1], now).fence >= fence then return 0 end
write(KEYS[1], ARGV[4], ARGV[1], ARGV[2], ARGV[3], ARGV[5])
local given = possible(get(KEYS[2]), now)
redis.call('SET', KEYS[2], text(math.max(given, fence)), 'PX', ${FENCE_TTL_MS})
return 1
`

/**
 * ARGV: known, highestFence. Answers the record only if it is newer than `known`. The purpose of the write is to fail on a
 * replica, a full server or one that cannot save: such a store cannot be used.
 */
export const READ = `${PREAMBLE}
local now = clock()
local highest = tonumber(ARGV[2])
local given = get(KEYS[2])
redis.call('SET', KEYS[2], text(math.max(possible(given, now), highest)), 'PX', ${FENCE_TTL_MS})
local record = read(KEYS[1], now)
local hosts = possible(redis.call('HGET', KEYS[1], 'hosts'), now)
local isNewer = record.fence > tonumber(ARGV[1])
local isPlanted = record.fields[1] and record.fence == 0 or given and possible(given, now) == 0
local answer = reply('read', now, hosts, isNewer and record or nil)
answer[8] = text(record.fence)
answer[9] = isPlanted and '1' or '0'
return answer
`
