// A histogram: observations counted by upper bounds.

/** Numbers of observations by their upper bounds, of which the last is Infinity. */
export interface Observations {
  readonly bounds: readonly number[]
  readonly counts: readonly number[]
  readonly sum: number
}
interface Histogram {
  observe(value: number): void
  observations(): Observations
}

/** `bounds` rise, and the last is Infinity. */
export function createHistogram(bounds: readonly number[]): Histogram {
  const counts = bounds.map(() => 0)
  let sum = 0
  return {
    observe(value) {
      sum += value
      counts[bounds.findIndex((bound) => value <= bound)]! += 1
    },
    observations: () => ({ bounds, counts: [...counts], sum }),
  }
}
