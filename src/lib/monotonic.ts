// A monotonic clock in ms, with fractions. That of `performance` loads ten modules of Node.
export function monotonicMs(): number {
  return process.uptime() * 1_000
}
