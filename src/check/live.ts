// One request to the service, as the daemon makes it, and what a person does about the answer.
import type { Config } from '../config/config.ts'
import { revealAll } from '../config/pair.ts'
import type { RemedyOf } from '../host/remedy.ts'
import { createSystemClock } from '../lib/clock.ts'
import { asSentence } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus } from '../lib/error.ts'
import { assertionReader, createFetchToken } from '../source/fetch-token.ts'
import type { ServiceOutcome } from '../token/outcome.ts'
import { knownLife } from '../token/token.ts'
import type { Finding } from './findings.ts'

/** Many servers do not decode what RFC 6749, section 2.3.1, has encoded. */
const PLAIN_BASIC =
  ' If key and secret are right, the service may not decode them: try "send": "basic-plain" in `service`.'

/** Asks the service for a token once, and drops it. The status is 77 where the pair is refused, 75 without a token. */
export async function askOnce(
  config: Config,
  { env, remedyOf, signal }: { env: NodeJS.ProcessEnv; remedyOf: RemedyOf; signal: AbortSignal },
): Promise<Finding & { readonly status: number }> {
  const clock = createSystemClock()
  const fetchToken = createFetchToken({ ...config, env, clock, secrets: () => revealAll(config) })
  const read = await assertionReader(config.pair)?.(clock.now().wallMs)
  const outcome: ServiceOutcome =
    read !== undefined && 'problem' in read
      ? { kind: 'transient', reason: 'assertion', detail: read.problem }
      : await fetchToken(signal, { assertion: read?.text })
  if (outcome.kind !== 'ok') {
    const { reason, detail, status } = outcome
    const http = status === undefined ? 'was not reached' : `answered with HTTP ${status}`
    const hint = status === 401 && config.pair.send === 'basic' ? PLAIN_BASIC : ''
    return {
      level: 'failure',
      sentence: `${http} (${reason}): ${asSentence(detail)}${hint} ${remedyOf(reason)}`,
      status: outcome.kind === 'permanent' ? exitStatus.noPermission : exitStatus.tryAgain,
    }
  }
  const lifeMs = knownLife(outcome, clock.now().wallMs)?.lifeMs
  if (lifeMs !== undefined && lifeMs <= 0) {
    const sentence = `gave a token that has expired already (HTTP 200). ${remedyOf('malformed-answer')}`
    return { level: 'failure', sentence, status: exitStatus.tryAgain }
  }
  const lives = lifeMs === undefined ? 'does not say how long it lives' : `lives ${formatDuration(lifeMs)}`
  return { level: 'ok', sentence: `gave a token that ${lives} (HTTP 200)`, status: exitStatus.ok }
}
