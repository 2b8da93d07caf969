// The scripts that run inside Redis: each is one atomic step, and says what time it is there.
// KEYS of each: record, lease, seen. ARGV[1] of each: the SHA-1 of a text that is of no use, or an empty
// text.

/** The longest text of a host has 44 KiB. */
const MAX_TEXT_BYTES = 65_536
/** The longest lease is a `Retry-After` of an hour and a fifth of it: 72 min. */
const MAX_LEASE_MS = 73 * 60_000
/** For so long a store is known to take writes. */
const SEEN_MS = 30_000

/**
 * What no host can have written is deleted: a key of another type, a long text, one without an end; and the
 * text that the caller judged. The order of two texts is that of their numbers: first the fence, then the id
 * as hex digits (locales play no part).
 */
const PREAMBLE = `
local time = redis.call('TIME')
local function get(key, longest)
  local text = redis.pcall('GET', key)
  if not text then return false, 0 end
  if text.err and not string.find(text.err, 'WRONGTYPE', 1, true) then redis.call('GET', key) end
  local left = redis.call('PTTL', key)
  local isOdd = text.err or #text > ${MAX_TEXT_BYTES} or left < 0 or left > longest
  if not isOdd and redis.sha1hex(text) ~= ARGV[1] then return text, left end
  redis.call('DEL', key)
  return false, 0
end
local function numbers(text)
  local fence, high, low = string.match(text or '', '^(%d+) (%x%x%x%x%x%x%x%x)(%x%x%x%x%x%x%x%x)')
  if not fence or #fence > 16 then return 0, 0, 0 end
  return tonumber(fence), tonumber(high, 16), tonumber(low, 16)
end
local function isLarger(one, other)
  local fence, high, low = numbers(one)
  local otherFence, otherHigh, otherLow = numbers(other)
  if fence ~= otherFence then return fence > otherFence end
  if high ~= otherHigh then return high > otherHigh end
  return low > otherLow
end
local record = get(KEYS[1], math.huge)
local lease, left = get(KEYS[2], ${MAX_LEASE_MS})
`

/**
 * ARGV[2..]: known pair, channel. Sets `seen`, which fails on a replica, a full server or one that cannot
 * save.
 */
export const LOOK = `${PREAMBLE}
redis.call('SET', KEYS[3], '1', 'PX', ${SEEN_MS})
local hosts = redis.call('PUBSUB', 'NUMSUB', ARGV[3])[2]
local isKnown = record and string.sub(record, 1, #ARGV[2] + 1) == ARGV[2] .. ' '
return {time[1], time[2], isKnown and 'known' or 'other', not isKnown and record, tostring(hosts)}
`

/** ARGV[2..]: known pair, id, leaseMs. */
export const ACQUIRE = `${PREAMBLE}
if isLarger(record, ARGV[2]) then return {time[1], time[2], 'newer', record, '0'} end
if lease and lease ~= ARGV[3] then return {time[1], time[2], 'taken', lease, tostring(left)} end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
return {time[1], time[2], 'yours', false, '0'}
`

/**
 * ARGV[2..]: record or an empty text, its ms, id, kept text or an empty one, its ms, channel. The largest
 * record wins.
 */
export const WRITE = `${PREAMBLE}
local isChanged = isLarger(ARGV[2], record)
if isChanged then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  record = ARGV[2]
end
local isFree = not lease or lease == ARGV[4]
if isFree and ARGV[5] ~= '' then
  isChanged = redis.call('SET', KEYS[2], ARGV[5], 'PX', ARGV[6])
elseif isFree and lease then
  isChanged = redis.call('DEL', KEYS[2])
end
if isChanged then redis.call('PUBLISH', ARGV[7], 'look') end
return {time[1], time[2], 'written', record, '0'}
`
