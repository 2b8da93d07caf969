// One attempt at the service: asks for a token once, within limits of time and size, and says what came of it.
import type { SecureContext } from 'node:tls'
import type { Clock } from '../lib/clock.ts'
import type { Config, ServiceConfig } from '../config/config.ts'
import { basicOf, type Credentials } from '../lib/secret.ts'
import { createSecureContext } from '../lib/crypto.ts'
import type { Attempt, PermanentReason, ServiceOutcome } from '../token/outcome.ts'
import { bare } from './detail.ts'
import { proxyOf } from './proxy.ts'
import type { Classify, ServiceResponse } from './response.ts'

export interface FetchTokenOptions {
  readonly service: ServiceConfig
  readonly credentials: Credentials
  readonly request: Config['request']
  /** For HTTPS_PROXY and NO_PROXY. */
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
  /** Gets each answer as it came; for `check`. */
  readonly onAnswer?: (answer: ServiceResponse) => void
  /** Further strings that no detail may hold, such as the tokens held; the credentials are known anyway. */
  readonly secrets: () => Iterable<string>
}

/**
 * Returns the function that asks this service with these credentials. That function never throws for anything that service or
 * network does, follows no redirect, keeps no connection, and ends promptly when its signal is aborted. This one throws
 * UserError (78) if the environment names a proxy that cannot be used.
 */
export function createFetchToken(options: FetchTokenOptions) {
  const { service, credentials, request, clock } = options
  const url = new URL(service.tokenUrl)
  const proxy = proxyOf(url, { proxy: request.proxy, env: options.env })
  // Made at the first attempt.
  let context: Promise<SecureContext> | null = null
  let classify: Classify | null = null

  return async (signal: AbortSignal, attempt?: Pick<Attempt, 'beforeRequest'>): Promise<ServiceOutcome> => {
    if (url.protocol === 'https:') context ??= createSecureContext(request.ca)
    // Loaded late: with a kept token the first attempt comes long after the start.
    const { exchange } = await import('./exchange.ts')
    const { serviceRequest } = await import('./request.ts')
    const { createClassify } = await import('./response.ts')
    const asked = serviceRequest(service, credentials)
    await attempt?.beforeRequest()
    const secureContext = await context
    const answer = await exchange(asked, { limits: request, proxy, secureContext, clock, signal })
    if ('kind' in answer) return answer
    options.onAnswer?.(answer)
    const own = { apiKey: credentials.apiKey.reveal(), apiSecret: credentials.apiSecret.reveal() }
    classify ??= createClassify(service)
    return classify(answer, {
      wallMs: clock.now().wallMs,
      secrets: [...Object.values(own), basicOf(credentials), ...options.secrets()],
      credentials: own,
    }).outcome
  }
}

/** Reports whether the service's refusals still include this earlier one, whose detail may have been cut or redacted. */
export function isNamedRefusal(
  { refusals }: ServiceConfig,
  { status, reason, detail }: { status: number; reason: PermanentReason; detail: string },
): boolean {
  const isWhole = !/…$|\[secret\]/.test(detail)
  return refusals.some(
    (known) =>
      known.status === status &&
      known.reason === reason &&
      (!isWhole || bare(detail).includes(bare(known.says))),
  )
}
