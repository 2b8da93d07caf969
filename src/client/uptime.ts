// A monotonic clock in ms. That of `performance` takes a millisecond to load.
export function uptimeMs(): number {
  return process.uptime() * 1_000
}
