// One attempt at the service: asks for a token once, and returns the outcome.
import type { SecureContext } from 'node:tls'
import { createSecureContext } from '../config/secrets.ts'
import { revealAll, type PairConfig, type RequestConfig, type ServiceConfig } from '../config/config.ts'
import type { Clock } from '../lib/clock.ts'
import type { Attempt, ReadyAssertion, ServiceOutcome } from '../token/outcome.ts'
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
  /** Made once: each context takes memory. */
  let context: Promise<SecureContext> | null = null

  function secureContext(): Promise<SecureContext> | null {
    if (!service.tokenUrl.startsWith('https:')) return null
    const { clientCertificate: own } = pair
    return (context ??= createSecureContext(request, own && { cert: own.cert, key: own.key.reveal() }))
  }

  return async (signal: AbortSignal, attempt: Partial<Attempt> = {}): Promise<ServiceOutcome> => {
    const { serviceWallMs = clock.now().wallMs, beforeRequest, onSent } = attempt
    let { assertion } = attempt
    const isSigned = pair.assertion?.kind === 'signed'
    if (isSigned) {
      const { signedAssertion } = await import('./assertion.ts')
      assertion = await signedAssertion(pair, { tokenUrl: service.tokenUrl, wallMs: serviceWallMs })
    }
    await beforeRequest?.()
    // Loaded late: with a kept token the first attempt comes long after the start.
    const { exchange } = await import('./exchange.ts')
    const asked = serviceRequest(service, pair, assertion)
    const on = { env, clock, signal, onSent, secureContext: await secureContext() }
    const answer = await exchange(asked, { request, ...on })
    if ('kind' in answer) return answer
    return outcomeOf(answer, {
      service,
      pair,
      wallMs: clock.now().wallMs,
      secrets: [assertion ?? '', ...revealAll({ pair, request, share: null }), ...secrets()],
      iatMs: isSigned ? serviceWallMs : undefined,
    })
  }
}

/** Returns the function that reads the ready-made assertion of this pair, and never rejects; undefined: it has none. */
export function assertionReader({ assertion }: Pick<PairConfig, 'assertion'>) {
  if (assertion?.kind !== 'ready') return undefined
  const { file } = assertion
  return async (wallMs: number): Promise<ReadyAssertion> =>
    (await import('./assertion.ts')).readAssertion(file, wallMs)
}
