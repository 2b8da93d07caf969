// One attempt at the service: asks for a token once, and says what came of it.
import type { SecureContext } from 'node:tls'
import { createSecureContext } from '../config/certificates.ts'
import type { PairConfig, RequestConfig, ServiceConfig, SignedAssertion } from '../config/config.ts'
import { revealAll } from '../config/pair.ts'
import type { Clock } from '../lib/clock.ts'
import type { Attempt, ReadyAssertion, ServiceOutcome } from '../token/outcome.ts'
import { createClassify } from './failures.ts'
import { proxyOf } from './proxy.ts'
import { serviceRequest } from './request.ts'

export interface FetchTokenOptions {
  readonly service: ServiceConfig
  readonly pair: PairConfig
  readonly request: RequestConfig
  /** For HTTPS_PROXY and NO_PROXY. */
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
  /** Further texts that no detail may hold, such as the tokens held; those of the pair are known anyway. */
  readonly secrets: () => Iterable<string>
}

/**
 * Returns the function that asks this service with these credentials, by one request at most. That function
 * never throws for anything that service or network does, follows no redirect, keeps no connection, and ends
 * promptly when its signal is aborted. This one throws UserError (78) if the environment names a proxy that
 * cannot be used.
 */
export function createFetchToken(options: FetchTokenOptions) {
  const { service, pair, request, clock } = options
  const { clientCertificate } = pair
  const proxy = proxyOf(new URL(service.tokenUrl), { proxy: request.proxy, env: options.env })
  const own = clientCertificate && { ...clientCertificate, key: clientCertificate.key.reveal() }
  const classify = createClassify({ service, pair })
  /** Made once: each context takes memory. */
  let context: Promise<SecureContext> | null = null

  async function signed(wallMs: number): Promise<string> {
    const { signedAssertion } = await import('./assertion.ts')
    const { tokenUrl } = service
    return signedAssertion(pair.assertion as SignedAssertion, { issuer: pair.apiKey!, tokenUrl, wallMs })
  }

  async function fetchToken(signal: AbortSignal, attempt: Partial<Attempt> = {}): Promise<ServiceOutcome> {
    const { serviceWallMs = clock.now().wallMs } = attempt
    const iatMs = pair.assertion?.kind === 'signed' ? serviceWallMs : undefined
    const assertion = iatMs === undefined ? attempt.assertion : await signed(iatMs)
    await attempt.beforeRequest?.()
    // Loaded late: with a kept token the first attempt comes long after the start.
    const { exchange } = await import('./exchange.ts')
    if (service.tokenUrl.startsWith('https:')) context ??= createSecureContext(request, own)
    const answer = await exchange(serviceRequest(service, pair, assertion), {
      limits: request,
      proxy,
      hostSetting: service.hostSetting,
      secureContext: await context,
      clock,
      signal,
      onSent: attempt.onSent,
    })
    if ('kind' in answer) return answer
    const known = revealAll({ pair, request, share: null })
    const secrets = [assertion ?? '', ...known, ...options.secrets()]
    return classify(answer, { wallMs: clock.now().wallMs, secrets, iatMs }).outcome
  }

  return fetchToken
}

/** Returns the function that reads the ready-made assertion of this pair, and never rejects; undefined: it has none. */
export function assertionReader({ assertion }: Pick<PairConfig, 'assertion'>) {
  if (assertion?.kind !== 'ready') return undefined
  const { file } = assertion
  return async (wallMs: number): Promise<ReadyAssertion> =>
    (await import('./assertion.ts')).readAssertion(file, wallMs)
}
