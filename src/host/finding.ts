// A finding of `check`: a sentence for people, and how grave it is.
import { formatDuration } from '../lib/duration.ts'
import { rendered } from './place-commands.ts'

export interface Hidden {
  readonly path: string
  readonly isAbsent: boolean
}

export interface Finding {
  /** `failure`: the service gave no token, which is no fault of this host. */
  readonly level: 'ok' | 'warning' | 'fault' | 'failure'
  /** The finding, with the remedy if one is needed. */
  readonly sentence: string
  /** The path that was not there, or may not be seen or read. */
  readonly hidden?: Hidden
}

/** The sentence says what to do, and `commands` do it. */
type Find = (sentence: string, commands?: readonly string[]) => Finding

const finding =
  (level: Finding['level']): Find =>
  (text, commands = []) => ({ level, sentence: rendered({ text, commands }) })

export const ok = finding('ok')
export const warning = finding('warning')
export const fault = finding('fault')
export const failure = finding('failure')

/** The commands that have the clock set. */
export const SET_CLOCK = ['sudo timedatectl set-ntp true']

/** A warning if a clock is off by `leastMs` or more; `sentence` gets words such as `2 min ahead of`. */
export function clockFindings(
  aheadMs: number,
  { leastMs, sentence }: { leastMs: number; sentence: (off: string) => string },
): Finding[] {
  if (Math.abs(aheadMs) < leastMs) return []
  const off = `${formatDuration(Math.abs(aheadMs))} ${aheadMs > 0 ? 'ahead of' : 'behind'}`
  return [warning(sentence(off), SET_CLOCK)]
}
