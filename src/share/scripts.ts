// The scripts that run inside Redis: each is one atomic step, and replies what is there after it.
// KEYS of each: record, lease, seen. ARGV of each: the SHA-1 of a text that is of no use, or an empty text;
// the channel; then its own.

/** The longest text of a host has 44 KiB. */
const MAX_TEXT_BYTES = 65_536
/** For so long a store is known to take writes. */
const SEEN_MS = 30_000

/**
 * What no host can have written is deleted (a key of another type, a long text, one without an end), and the
 * text that the caller judged. The order of two texts is that of their fences, then of their ids as numbers.
 */
const BEFORE = `
local time = redis.call('TIME')
local function get(key)
  local text = redis.pcall('GET', key)
  if not text then return false, 0 end
  if text.err and not string.find(text.err, 'WRONGTYPE', 1, true) then redis.call('GET', key) end
  local left = redis.call('PTTL', key)
  local isOdd = text.err or #text > ${MAX_TEXT_BYTES} or left < 0
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
local record = get(KEYS[1])
local lease, left = get(KEYS[2])
`
const AFTER = `
return {time[1], time[2], record, lease, left, redis.call('PUBSUB', 'NUMSUB', ARGV[2])[2]}
`

/** Sets `seen`, which fails on a replica, a full server or one that cannot save. */
export const POLL = `${BEFORE}
redis.call('SET', KEYS[3], '1', 'PX', ${SEEN_MS})
${AFTER}`

/** ARGV[3..]: known pair, id, leaseMs. */
export const ACQUIRE = `${BEFORE}
if not isLarger(record, ARGV[3]) and (not lease or lease == ARGV[4]) then
  redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5])
  lease, left = ARGV[4], tonumber(ARGV[5])
end
${AFTER}`

/** ARGV[3..]: record or an empty text, its ms, id, kept text or an empty one, its ms. */
export const WRITE = `${BEFORE}
local isChanged = isLarger(ARGV[3], record)
if isChanged then
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
  record = ARGV[3]
end
if not lease or lease == ARGV[5] then
  isChanged = isChanged or lease or ARGV[6] ~= ''
  redis.call('DEL', KEYS[2])
  lease, left = false, 0
  if ARGV[6] ~= '' then
    redis.call('SET', KEYS[2], ARGV[6], 'PX', ARGV[7])
    lease, left = ARGV[6], tonumber(ARGV[7])
  end
end
if isChanged then redis.call('PUBLISH', ARGV[2], 'look') end
${AFTER}`
