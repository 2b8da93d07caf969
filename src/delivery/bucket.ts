// A token bucket that holds the requests of one second: how often one connection may ask.

/** Whether one more request may be made now; null: there is no limit. */
export function createBucket(): (perSecond: number | null) => boolean {
  let left = 0
  let filledAtMs = -Infinity
  return (perSecond) => {
    if (perSecond === null) return true
    const nowMs = performance.now()
    left = Math.min(Math.max(1, perSecond), left + ((nowMs - filledAtMs) / 1_000) * perSecond)
    filledAtMs = nowMs
    if (left < 1) return false
    left -= 1
    return true
  }
}
