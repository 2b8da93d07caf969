// One attempt at the service: asks for a token once, within limits of time and size, and says what came of it.
import type { SecureContext } from 'node:tls'
import type { Clock } from '../lib/clock.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import type { Config, ServiceConfig } from '../config/config.ts'
import { basicOf, type Credentials } from '../lib/secret.ts'
import { createSecureContext } from '../lib/crypto.ts'
import type { Attempt, PermanentReason, ServiceOutcome } from '../token/outcome.ts'
import { bare } from './detail.ts'
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
  const proxyEnv = proxyEnvOf(url, options.env)
  // Made at the first attempt.
  let context: Promise<SecureContext> | null = null
  let classify: Classify | null = null

  return async (signal: AbortSignal, attempt?: Pick<Attempt, 'beforeRequest'>): Promise<ServiceOutcome> => {
    if (url.protocol === 'https:') context ??= createSecureContext(request.ca)
    // Loaded late: with a kept token the first attempt comes long after the start.
    const { exchange, serviceRequest } = await import('./exchange.ts')
    const { createClassify } = await import('./response.ts')
    const asked = serviceRequest(service, credentials)
    await attempt?.beforeRequest()
    const secureContext = await context
    const answer = await exchange(asked, { limits: request, proxyEnv, secureContext, clock, signal })
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

/**
 * The `proxyEnv` of an agent for this service: `https_proxy` or `HTTPS_PROXY` with `no_proxy` or `NO_PROXY`, or nothing. Plain
 * HTTP (a loopback service) never uses a proxy, which would see the secret. Throws UserError if the variable names no HTTP proxy,
 * which Node's agents would silently ignore. Its value is not quoted, because it can contain a password.
 */
export function proxyEnvOf(service: URL, env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const proxy = (env['https_proxy'] || env['HTTPS_PROXY'])?.trim()
  if (service.protocol !== 'https:' || !proxy) return {}
  // As curl has it: no scheme means HTTP.
  const url = proxy.includes('://') ? proxy : `http://${proxy}`
  if (!/^https?:\/\//i.test(url) || !URL.canParse(url)) {
    const message =
      'HTTPS_PROXY names no HTTP proxy: write it as http://proxy.example.com:3128, or leave it out and set nothing'
    throw new UserError(message, exitStatus.configuration)
  }
  return { https_proxy: new URL(url).href, no_proxy: env['no_proxy'] || env['NO_PROXY'] || '' }
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
