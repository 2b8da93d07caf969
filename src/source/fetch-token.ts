// One attempt at the service: asks for a token once, within limits of time and size, and says what came of it.
import type { SecureContext } from 'node:tls'
import type { Clock } from '../lib/clock.ts'
import type { ServiceConfig } from '../config/config.ts'
import { basicOf, type Credentials } from '../lib/secret.ts'
import { createSecureContext } from '../lib/crypto.ts'
import type { Attempt, PermanentReason, ServiceOutcome } from '../token/outcome.ts'
import { bare } from './detail.ts'
import { proxyEnvOf } from './proxy.ts'
import { serviceRequest } from './request.ts'
import type { Classify, ServiceResponse } from './response.ts'

export interface FetchTokenOptions {
  readonly service: ServiceConfig
  readonly credentials: Credentials
  readonly request: {
    /** For the whole attempt, in ms. */
    readonly timeoutMs: number
    /** For name, connection and TLS, in ms. */
    readonly connectTimeoutMs: number
    /** PEM of authorities that are trusted beside the ones that Node knows; null: none. */
    readonly ca: string | null
  }
  /** For HTTPS_PROXY and NO_PROXY. */
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
  /** For `check`: an answer as it came. */
  readonly onAnswer?: (answer: ServiceResponse) => void
  /** Further strings that no detail may hold, such as the tokens held; the credentials are known anyway. */
  readonly secrets: () => Iterable<string>
}

/** A FetchToken whose outcomes are the service's own. */
export type FetchFromService = (
  signal: AbortSignal,
  attempt?: Pick<Attempt, 'beforeRequest'>,
) => Promise<ServiceOutcome>

/**
 * Returns the function that asks this service with these credentials. It never throws for anything that service or network does, follows
 * no redirect, keeps no connection, and ends promptly when its signal is aborted. Throws a UserError (status 78) at
 * once where the proxy of the environment is none.
 */
export function createFetchToken(options: FetchTokenOptions): FetchFromService {
  const { service, credentials, request, clock } = options
  const url = new URL(service.tokenUrl)
  const proxyEnv = proxyEnvOf(url, options.env)
  // Made at the first attempt.
  let context: Promise<SecureContext | null> | null = null
  let classify: Classify | null = null

  return async (signal, attempt) => {
    context ??= url.protocol === 'https:' ? createSecureContext(request.ca) : Promise.resolve(null)
    // With a token that was kept, the first attempt is long after the start.
    const [{ exchange }, { createClassify }] = await Promise.all([
      import('./exchange.ts'),
      import('./response.ts'),
    ])
    const asked = serviceRequest(service, credentials)
    await attempt?.beforeRequest()
    const answer = await exchange(asked, {
      limits: request,
      proxyEnv,
      secureContext: await context,
      clock,
      signal,
    })
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

/** Reports whether the description names a refusal of before. Its detail may have been cut, or hide a secret. */
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
