// A histogram: observations counted by upper bounds.

/** Numbers of observations by their upper bounds, of which the last is Infinity. */
export interface Observations {
  readonly bounds: readonly number[]
  readonly counts: readonly number[]
  readonly sum: number
}

/** `bounds` rise, and the last is Infinity. */
export function createHistogram(bounds: readonly number[]) {
  const counts = bounds.map(() => 0)
  let sum = 0
  return {
    observe(value: number): void {
      sum += value
      counts[bounds.findIndex((bound) => value <= bound)]! += 1
    },
    observations: (): Observations => ({ bounds, counts: [...counts], sum }),
  }
}
