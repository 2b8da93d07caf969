// One attempt at the service: asks for a token once, and returns the outcome.
import type { SecureContext } from 'node:tls'
import { createSecureContext } from '../config/secrets.ts'
import { revealAll, type PairConfig, type RequestConfig, type ServiceConfig } from '../config/config.ts'
import type { Clock } from '../lib/clock.ts'
import { fingerprintOf } from '../protocol.ts'
import type { Attempt, ServiceOutcome } from '../token/outcome.ts'
import type { ReadyAssertion } from './assertion.ts'
import { outcomeOf } from './failures.ts'
import { serviceRequest } from './request.ts'

export interface FetchTokenOptions {
  readonly service: ServiceConfig
  readonly pair: PairConfig
  readonly request: RequestConfig
  /** For HTTPS_PROXY and NO_PROXY. */
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
  /** Further texts that no detail may hold, such as the tokens held; those of the pair are known anyway. */
  readonly secrets: () => readonly string[]
}

/**
 * Returns the function that asks this service with these credentials, by one request at most. That function
 * never throws for anything that service or network does, follows no redirect, keeps no connection, and ends
 * promptly when its signal is aborted.
 */
export function createFetchToken({ service, pair, request, env, clock, secrets }: FetchTokenOptions) {
  /** It is made once: each context takes memory. */
  let context: Promise<SecureContext> | null = null

  function secureContext(): Promise<SecureContext> | null {
    if (!service.tokenUrl.startsWith('https:')) return null
    return (context ??= createSecureContext(request, pair.clientCertificate))
  }

  /** The assertion to send, or why there is none; null: this pair has none. */
  async function assertionFor(wallMs: number): Promise<ReadyAssertion | null> {
    if (pair.assertion === null) return null
    const { readAssertion, signedAssertion } = await import('./assertion.ts')
    if (pair.assertion.kind === 'ready') return readAssertion(pair.assertion.file, wallMs, clock)
    return { text: await signedAssertion(pair, { tokenUrl: service.tokenUrl, wallMs }) }
  }

  return async (signal: AbortSignal, attempt: Partial<Attempt> = {}): Promise<ServiceOutcome> => {
    const { serviceWallMs: wallMs = clock.now().wallMs, beforeRequest, onSent } = attempt
    const isSigned = pair.assertion?.kind === 'signed'
    const assertion = await assertionFor(wallMs)
    if (assertion !== null && 'problem' in assertion)
      return { kind: 'transient', reason: 'assertion', detail: assertion.problem }
    await beforeRequest?.(isSigned || assertion === null ? '' : fingerprintOf(assertion.text))
    // It is loaded late: with a kept token the first attempt comes long after the start.
    const { exchange } = await import('./exchange.ts')
    const asked = serviceRequest(service, pair, assertion?.text)
    const on = { env, clock, signal, onSent, secureContext: await secureContext() }
    const answer = await exchange(asked, { request, ...on })
    if ('kind' in answer) return answer
    return outcomeOf(answer, {
      service,
      pair,
      wallMs: clock.now().wallMs,
      secrets: [assertion?.text ?? '', ...revealAll({ pair, request, share: null }), ...secrets()],
      iatMs: isSigned ? wallMs : undefined,
    })
  }
}

/**
 * Returns the function that reads the ready-made assertion of this pair, be it past its end; null: there is none. It
 * never rejects. Undefined: the assertion of this pair is not ready-made.
 */
export function assertionReader({ assertion }: Pick<PairConfig, 'assertion'>, clock: Pick<Clock, 'sleep'>) {
  if (assertion?.kind !== 'ready') return undefined
  return async (): Promise<string | null> => {
    const { readAssertion } = await import('./assertion.ts')
    const found = await readAssertion(assertion.file, 0, clock)
    return 'text' in found ? found.text : null
  }
}
