// A finding of `check`: a sentence for people, and how grave it is.
import { formatDuration } from './duration.ts'

export interface Finding {
  /** `failure`: the service gave no token, which is no fault of this host. */
  readonly level: 'ok' | 'warning' | 'fault' | 'failure'
  /** The finding, with the remedy if one is needed. */
  readonly sentence: string
}

export const ok = (sentence: string): Finding => ({ level: 'ok', sentence })
export const warning = (sentence: string): Finding => ({ level: 'warning', sentence })
export const fault = (sentence: string): Finding => ({ level: 'fault', sentence })
export const failure = (sentence: string): Finding => ({ level: 'failure', sentence })

/** A warning if a clock is off by `leastMs` or more; `sentence` gets words such as `2 min ahead of`. */
export function clockFindings(
  aheadMs: number,
  { leastMs, sentence }: { leastMs: number; sentence: (off: string) => string },
): Finding[] {
  if (Math.abs(aheadMs) < leastMs) return []
  const off = `${formatDuration(Math.abs(aheadMs))} ${aheadMs > 0 ? 'ahead of' : 'behind'}`
  return [warning(`${sentence(off)} (timedatectl set-ntp true)`)]
}
