// How the files differ from what is in force, as `status` shows it. Pure.
import type { OnDisk } from './on-disk.ts'
import type { CandidateView } from '../token/selectors.ts'

export interface ConfigurationState {
  readonly state: 'current' | 'changed' | 'faulty'
  /** The faults and their remedies, or why a reload does not help; null: neither. */
  readonly problem: string | null
  /** The problem is another pair in the files: the service refused it, or it has given no token yet. */
  readonly pair?: 'refused' | 'tried'
}

interface Found {
  /** Null: the files were not read since the start. */
  readonly onDisk: OnDisk | null
  readonly hasSecretFiles: boolean
  /** The files that hold the pair. */
  readonly files: readonly string[]
  readonly candidate: CandidateView | null
  /** The files hold another pair than the newest that was read; `isSettling`: it is used by itself. */
  readonly other: { readonly isSettling: boolean } | null
  readonly needsRestart: readonly string[]
  /** The settings are those in force. */
  readonly isCurrent: boolean
}

export function configurationState(found: Found): ConfigurationState {
  const { onDisk, hasSecretFiles, candidate, other, needsRestart, isCurrent } = found
  if (onDisk !== null && onDisk.kind !== 'loaded') {
    const words = 'No rotation of the secrets is noticed until this is corrected: '
    return { state: 'faulty', problem: (hasSecretFiles ? words : '') + onDisk.problem }
  }
  const files = found.files.join(' with ')
  if (candidate !== null) return candidateState(candidate, files)
  if (other !== null) {
    const when = other.isSettling ? 'is tried in a moment' : 'is tried at a reload'
    return { state: 'changed', pair: 'tried', problem: `${files} holds another pair, which ${when}` }
  }
  if (needsRestart.length > 0)
    return { state: 'changed', problem: `${needsRestart.join(' and ')} can be changed by a restart alone` }
  return { state: isCurrent ? 'current' : 'changed', problem: null }
}

/** The other pair in the files, which is not in use. */
function candidateState(candidate: CandidateView, files: string): ConfigurationState {
  const { reason, detail, isRefused, answeredAt } = candidate
  const answer = `${reason}: ${detail}`
  if (!isRefused) {
    const why = reason === null ? '' : ` (${answer})`
    const problem = `${files} holds another pair, which is tried until there is an answer${why}`
    return { state: 'changed', pair: 'tried', problem }
  }
  const when = answeredAt === null ? '' : ` at ${new Date(answeredAt.wallMs).toISOString().slice(11, 16)} UTC`
  const words = `holds a pair that the service refused${when} (${answer})`
  const problem = `Correct these files first, because a restart would use them: ${files} ${words}`
  return { state: 'faulty', pair: 'refused', problem }
}
