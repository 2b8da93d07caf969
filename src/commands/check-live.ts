// Asks the service for a token once, for `check --live`, and says what came of it. The token is dropped.
import type { Config } from '../config/config.ts'
import { createSystemClock } from '../lib/clock.ts'
import { asSentence } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus } from '../lib/error.ts'
import { failure, ok, warning, type Finding } from '../lib/finding.ts'
import { createFetchToken } from '../source/fetch-token.ts'
import type { ServiceOutcome } from '../token/outcome.ts'
import { remedyFor } from '../token/remedy.ts'
import { knownLife } from '../token/token.ts'

/** A wall clock that is off by more than this gets a warning. */
const CLOCK_OFF_MS = 60_000

interface Answer {
  readonly findings: readonly Finding[]
  /** Exit status. */
  readonly status: number
}

export async function askOnce(
  config: Config,
  { unseen, env, signal }: { unseen: readonly string[]; env: NodeJS.ProcessEnv; signal: AbortSignal },
): Promise<Answer> {
  const hidden = unseen.filter((setting) => setting.startsWith('credentials.'))
  if (hidden.length > 0) {
    const sentence = `cannot be asked from here, because only the service sees ${hidden.join(' and ')}: ask with "kyc-tokend refresh"`
    return { findings: [warning(sentence)], status: exitStatus.tryAgain }
  }
  const clock = createSystemClock()
  const fetchToken = createFetchToken({ ...config, env, clock, secrets: () => [] })
  return answerOf(await fetchToken(signal), { wallMs: clock.now().wallMs, file: config.file })
}

function answerOf(outcome: ServiceOutcome, { wallMs, file }: { wallMs: number; file: string }): Answer {
  if (outcome.kind !== 'ok') {
    const http = outcome.status === undefined ? 'without an HTTP answer' : `with HTTP ${outcome.status}`
    // It is being tried here already.
    const remedy = remedyFor(outcome.reason).replace(/; `kyc-tokend check --live` tries it$/, '')
    const sentence = `answered ${http} (${outcome.reason}): ${asSentence(outcome.detail)} ${asSentence(remedy)} Configuration: ${file}`
    const status = outcome.kind === 'permanent' ? exitStatus.noPermission : exitStatus.tryAgain
    return { findings: [failure(sentence)], status }
  }
  const { serverDateMs } = outcome
  const lifeMs = knownLife(outcome, wallMs)?.lifeMs
  if (lifeMs !== undefined && lifeMs <= 0) {
    const sentence = `gave a token that has expired already (HTTP 200). ${asSentence(remedyFor('malformed-answer'))}`
    return { findings: [failure(sentence)], status: exitStatus.tryAgain }
  }
  const lives = lifeMs === undefined ? 'does not say how long it lives' : `lives ${formatDuration(lifeMs)}`
  const given = ok(`gave a token that ${lives} (HTTP 200)`)
  return { findings: [given, ...clockFindings(serverDateMs, wallMs)], status: exitStatus.ok }
}

function clockFindings(serverDateMs: number | undefined, wallMs: number): Finding[] {
  if (serverDateMs === undefined || Math.abs(wallMs - serverDateMs) < CLOCK_OFF_MS) return []
  const off = `${formatDuration(Math.abs(wallMs - serverDateMs))} ${wallMs > serverDateMs ? 'ahead of' : 'behind'}`
  return [warning(`the clock is ${off} the service's: set it (timedatectl set-ntp true)`)]
}
