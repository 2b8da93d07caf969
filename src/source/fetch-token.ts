// One attempt at the service: asks for a token once, within limits of time and size, and says what came of it.
import type { SecureContext } from 'node:tls'
import type { Clock } from '../lib/clock.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { isLoopbackHost } from '../lib/loopback.ts'
import { certificatesIn } from '../lib/pem.ts'
import { createSecureContext } from '../lib/secure-context.ts'
import type { Attempt, ServiceOutcome } from '../token/outcome.ts'
import { proxyEnvOf } from './proxy.ts'
import { serviceRequest, type Credentials } from './request.ts'

export interface FetchTokenOptions {
  /** https, or http for a loopback host. Its path is kept. */
  readonly baseUrl: string
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
 * once where the settings cannot work: a `caFile` without certificates, a proxy that is none, a `baseUrl` in the clear.
 */
export function createFetchToken(options: FetchTokenOptions): FetchFromService {
  const { baseUrl, credentials, request, clock } = options
  const service = new URL(baseUrl)
  refusePlainHttp(service)
  const proxyEnv = proxyEnvOf(service, options.env)
  const authorities = request.ca === null ? [] : authoritiesIn(request.ca)
  // Made at the first attempt.
  let context: Promise<SecureContext | null> | null = null

  return async (signal, attempt) => {
    context ??= service.protocol === 'https:' ? createSecureContext(authorities) : Promise.resolve(null)
    // With a token that was kept, the first attempt is long after the start.
    const [{ exchange }, { classify }] = await Promise.all([import('./exchange.ts'), import('./response.ts')])
    const asked = serviceRequest(baseUrl, credentials)
    await attempt?.beforeRequest()
    const answer = await exchange(asked, {
      limits: request,
      proxyEnv,
      secureContext: await context,
      clock,
      signal,
    })
    if ('kind' in answer) return answer
    const own = { apiKey: credentials.apiKey.reveal(), apiSecret: credentials.apiSecret.reveal() }
    return classify(answer, {
      wallMs: clock.now().wallMs,
      secrets: [...Object.values(own), ...options.secrets()],
      credentials: own,
    })
  }
}

function refusePlainHttp({ protocol, hostname }: URL): void {
  if (protocol === 'https:' || (protocol === 'http:' && isLoopbackHost(hostname))) return
  throw new UserError(
    'baseUrl must begin with https://, or the secret would cross the network in the clear',
    exitStatus.configuration,
  )
}

function authoritiesIn(pem: string): string[] {
  const found = certificatesIn(pem)
  if (found.length > 0) return found
  throw new UserError(
    'request.caFile holds no certificate that can be read: it must be PEM, as -----BEGIN CERTIFICATE-----',
    exitStatus.configuration,
  )
}
