// Interleaved rounds: in each round everybody is measured once, so that what disturbs one disturbs all.

/** The daemon, the program it is compared with, and the daemon with the flags of its systemd unit. */
export const contestants = ['ours', 'bare', 'sandboxed'] as const
export type Contestant = (typeof contestants)[number]
/** The value of each round, for each. */
export type Samples<T, W extends string = Contestant> = Record<W, T[]>

/**
 * Measures everybody in turn, beginning with another one each round, and in every other one in the opposite order: a server
 * that closes a thousand connections disturbs the one that comes next. One round more is made first and thrown away: it warms up.
 */
export async function interleaved<T, W extends string = Contestant>(
  rounds: number,
  measure: (who: W) => Promise<T>,
  everybody: readonly W[] = contestants as readonly string[] as readonly W[],
): Promise<Samples<T, W>> {
  const samples = Object.fromEntries(everybody.map((who) => [who, [] as T[]])) as Samples<T, W>
  for (let round = -1; round < rounds; round += 1) {
    const first = (round + 1) % everybody.length
    const order = [...everybody.slice(first), ...everybody.slice(0, first)]
    for (const who of round % 2 === 0 ? order : order.toReversed()) {
      const sample = await measure(who)
      if (round >= 0) samples[who].push(sample)
    }
  }
  return samples
}

export function mapSamples<T, W extends string>(
  samples: Samples<T, W>,
  pick: (sample: T) => number,
): Samples<number, W> {
  return Object.fromEntries(
    Object.entries<T[]>(samples).map(([who, values]) => [who, values.map(pick)]),
  ) as Samples<number, W>
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5)
}

/** Uncertainty of medians of such values: half the distance between their quartiles. */
export function noiseOf(values: readonly number[]): number {
  return (quantile(values, 0.75) - quantile(values, 0.25)) / 2
}

function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((one, other) => one - other)
  const at = (sorted.length - 1) * share
  const low = sorted[Math.floor(at)] ?? NaN
  const high = sorted[Math.ceil(at)] ?? NaN
  return low + (high - low) * (at - Math.floor(at))
}
