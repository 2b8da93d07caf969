// Interleaved rounds: in each round everybody is measured once, so that what disturbs one disturbs all.

/** The daemon, the program it is compared with, and the daemon with the flags of its systemd unit. */
export const contestants = ['ours', 'bare', 'sandboxed'] as const
export type Contestant = (typeof contestants)[number]
/** The value of each round, for each. */
export type Samples<T> = Record<Contestant, T[]>

/**
 * Measures everybody in turn, beginning with another one each round. One round more is made first and thrown away: it
 * warms up.
 */
export async function interleaved<T>(
  rounds: number,
  measure: (who: Contestant) => Promise<T>,
): Promise<Samples<T>> {
  const samples: Samples<T> = { ours: [], bare: [], sandboxed: [] }
  for (let round = -1; round < rounds; round += 1) {
    for (let turn = 0; turn < contestants.length; turn += 1) {
      const who = contestants[(round + 1 + turn) % contestants.length] ?? 'ours'
      const sample = await measure(who)
      if (round >= 0) samples[who].push(sample)
    }
  }
  return samples
}

export function mapSamples<T>(samples: Samples<T>, pick: (sample: T) => number): Samples<number> {
  return {
    ours: samples.ours.map(pick),
    bare: samples.bare.map(pick),
    sandboxed: samples.sandboxed.map(pick),
  }
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
