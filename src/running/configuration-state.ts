// How the files differ from what is in use, as `status` shows it. Pure.
import { isRefusedPair, type Candidate } from '../token/state.ts'
import {
  filesOf,
  hasOtherPair,
  hasSecretFiles,
  isCurrent,
  isPairUntried,
  needingRestart,
  type InUse,
} from './in-use.ts'

export interface ConfigurationState {
  readonly state: 'current' | 'changed' | 'faulty'
  /** The faults and their remedies, or why a reload does not help; null: neither. */
  readonly problem: string | null
  /** The problem is another pair in the files: the service refused it, or it is being tried. */
  readonly pair?: 'refused' | 'tried'
}

const CURRENT: ConfigurationState = { state: 'current', problem: null }

/** `candidate`: that of the keeper, with its last answer. Secrets in files are not compared. */
export function configurationState(inUse: InUse, candidate: Candidate | null): ConfigurationState {
  const { onDisk, config } = inUse
  if (onDisk !== null && onDisk.kind !== 'loaded') {
    const words = 'No rotation of the secrets is noticed until this is corrected: '
    return { state: 'faulty', problem: (hasSecretFiles(config) ? words : '') + onDisk.problem }
  }
  const ofPair = pairState(inUse, candidate) ?? untriedState(inUse)
  if (ofPair !== null || onDisk === null) return ofPair ?? CURRENT
  const fixed = needingRestart(onDisk.config, inUse)
  if (fixed.length > 0) {
    return { state: 'changed', problem: `${fixed.join(' and ')} can be changed by a restart alone` }
  }
  return isCurrent(inUse, onDisk) ? CURRENT : { state: 'changed', problem: null }
}

/** The other pair in the files, which is not in use; null: there is none. */
export function pairState(inUse: InUse, candidate: Candidate | null): ConfigurationState | null {
  if (inUse.candidate === null || candidate === null) return null
  const { failure } = candidate
  const files = filesOf(inUse.candidate.config).join(' with ')
  if (failure === null || !isRefusedPair(candidate)) {
    const why = failure === null ? '' : ` (${failure.reason}: ${failure.detail})`
    const problem = `${files} holds another pair, which is tried until there is an answer${why}`
    return { state: 'changed', pair: 'tried', problem }
  }
  const when = new Date(failure.since.wallMs).toISOString().slice(11, 16)
  const words = `holds a pair that the service refused at ${when} UTC (${failure.reason}: ${failure.detail})`
  const problem = `Correct these files first, because a restart would use them: ${files} ${words}`
  return { state: 'faulty', pair: 'refused', problem }
}

/** The other pair in the files that was not tried yet, and that a restart would use; null: there is none. */
function untriedState(inUse: InUse): ConfigurationState | null {
  const { onDisk } = inUse
  if (onDisk?.kind !== 'loaded' || !isPairUntried(inUse, onDisk)) return null
  const when = hasOtherPair(inUse, onDisk) ? 'is tried in a moment' : 'is tried at a reload'
  const files = filesOf(onDisk.config).join(' with ')
  return { state: 'changed', pair: 'tried', problem: `${files} holds another pair, which ${when}` }
}
