// One attempt at the service: asks for a token once, and says what came of it.
import type { SecureContext } from 'node:tls'
import type { Clock } from '../lib/clock.ts'
import { formatDuration } from '../lib/duration.ts'
import type { Config, ServiceConfig } from '../config/config.ts'
import { sentTexts, type Credentials } from '../config/credentials.ts'
import { Secret } from '../lib/secret.ts'
import { createSecureContext } from '../config/certificates.ts'
import type { Attempt, ServiceOutcome, TransientFailure } from '../token/outcome.ts'
import type { Refusal } from '../token/state.ts'
import { bare } from './detail.ts'
import { proxyOf, type Proxy } from './proxy.ts'
import type { ServiceResponse } from './answer.ts'
import type { Classify } from './response.ts'

export interface FetchTokenOptions {
  readonly service: ServiceConfig
  readonly credentials: Credentials
  readonly request: Config['request']
  /** For HTTPS_PROXY and NO_PROXY. */
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
  /** Gets each answer as it came; for `check`. */
  readonly onAnswer?: (answer: ServiceResponse) => void
  /** Gets the type of each token that, by the service, is not one to be sent as `service.use` has it. */
  readonly onOtherType?: (type: string) => void
  /** Further strings that no detail may hold, such as the tokens held; the credentials are known anyway. */
  readonly secrets: () => Iterable<string>
}

/**
 * Returns the function that asks this service with these credentials. That function never throws for
 * anything that service or network does, follows no redirect, keeps no connection, and ends promptly when
 * its signal is aborted. This one throws UserError (78) if the environment names a proxy that cannot be
 * used.
 */
export function createFetchToken(options: FetchTokenOptions) {
  const { service, credentials, request, clock } = options
  const url = new URL(service.tokenUrl)
  const proxy = proxyOf(url, { proxy: request.proxy, env: options.env })
  const hasCertificate = certificateOf(credentials) !== null
  const readyFile = service.assertion?.file ?? null
  /** A refusal may be for our clock alone. */
  const isSigned = service.assertion !== null && readyFile === null
  let contexts: Promise<Contexts> | null = null
  let classify: Classify | null = null
  /** How far the service's clock was ahead of ours at its last answer. */
  let aheadMs = 0

  /**
   * Sends one request. `ready`: the ready-made assertion; else it is signed, if the service takes one.
   * `offsetMs`: how far its time is ahead of our clock.
   */
  async function ask(
    signal: AbortSignal,
    { limits = request, offsetMs = 0, ready = '', onSent }: Asking,
  ): Promise<ServiceOutcome> {
    contexts ??= contextsOf(options, proxy)
    // Loaded late: with a kept token the first attempt comes long after the start.
    const { exchange } = await import('./exchange.ts')
    const { serviceRequest } = await import('./request.ts')
    const { dateOf } = await import('./answer.ts')
    const { createClassify } = await import('./response.ts')
    const assertion = isSigned ? await signed(clock.now().wallMs + offsetMs) : ready
    const sent = serviceRequest(service, credentials, assertion)
    const channel = { proxy, ...(await contexts), hasCertificate }
    const answer = await exchange(sent, { ...channel, limits, clock, signal, onSent })
    if ('kind' in answer) return answer
    options.onAnswer?.(answer)
    const { wallMs } = clock.now()
    aheadMs = (dateOf(answer) ?? wallMs) - wallMs
    classify ??= createClassify(service)
    const further = { ...credentials.further, ...(ready !== '' && { [FILE]: new Secret(ready) }) }
    const { outcome, otherType } = classify(answer, {
      wallMs,
      secrets: [assertion, ...sentTexts({ ...credentials, further }), ...options.secrets()],
      credentials: { ...credentials, further },
    })
    if (otherType !== undefined) options.onOtherType?.(otherType)
    return outcome
  }

  async function signed(wallMs: number): Promise<string> {
    const { signedAssertion } = await import('./assertion.ts')
    return signedAssertion(service, credentials, wallMs)
  }

  /** The ready-made assertion, or why none can be sent. By the service's clock as far as it is known. */
  async function readyMade(file: string): Promise<string | TransientFailure> {
    const { readReadyAssertion } = await import('../config/ready-assertion.ts')
    const read = await readReadyAssertion(file, { wallMs: clock.now().wallMs + aheadMs })
    if (typeof read !== 'string') return read.text
    const detail = `The file ${file} (${FILE}) ${read}`
    return { kind: 'transient', reason: 'assertion', detail }
  }

  async function fetchToken(signal: AbortSignal, attempt?: Omit<Attempt, 'cause'>): Promise<ServiceOutcome> {
    const ready = readyFile === null ? '' : await readyMade(readyFile)
    if (typeof ready !== 'string') return ready
    await attempt?.beforeRequest()
    const onSent = attempt?.onSent
    if (!isSigned) return ask(signal, { ready, onSent })
    const startedMs = clock.now().bootMs
    const offsetMs = Math.abs(aheadMs) > TOLERATED_CLOCK_MS ? aheadMs : 0
    const outcome = await ask(signal, { offsetMs, onSent })
    const isForClock = outcome.kind === 'permanent' && Math.abs(aheadMs - offsetMs) > TOLERATED_CLOCK_MS
    const timeoutMs = request.timeoutMs - (clock.now().bootMs - startedMs)
    if (!isForClock || timeoutMs <= 0 || signal.aborted) return withClock(outcome, aheadMs)
    await attempt?.beforeRequest()
    const limits = { timeoutMs, connectTimeoutMs: Math.min(timeoutMs, request.connectTimeoutMs) }
    return withClock(await ask(signal, { limits, offsetMs: aheadMs, onSent }), aheadMs)
  }

  return Object.assign(fetchToken, {
    /** Why no request can be made now; null: one can. A host of a fleet asks it before it asks for all. */
    async notReady(): Promise<TransientFailure | null> {
      const ready = readyFile === null ? '' : await readyMade(readyFile)
      return typeof ready === 'string' ? null : ready
    },
  })
}

const FILE = 'service.assertion.file'

interface Asking {
  readonly limits?: Limits
  readonly offsetMs?: number
  readonly ready?: string
  readonly onSent?: (() => void) | undefined
}
type Limits = Pick<Config['request'], 'timeoutMs' | 'connectTimeoutMs'>

/** Null: there is no such TLS. */
interface Contexts {
  readonly secureContext: SecureContext | null
  readonly proxyContext: SecureContext | null
}

/** The contexts of TLS, made once: each takes memory. A proxy is shown no client certificate. */
async function contextsOf(
  { service, credentials, request }: FetchTokenOptions,
  proxy: Proxy | null,
): Promise<Contexts> {
  const certificate = certificateOf(credentials)
  if (!service.tokenUrl.startsWith('https:')) return { secureContext: null, proxyContext: null }
  const secureContext = await createSecureContext(request, certificate)
  if (proxy?.url.protocol !== 'https:') return { secureContext, proxyContext: null }
  const isSame = certificate === null
  return { secureContext, proxyContext: isSame ? secureContext : await createSecureContext(request) }
}

/** Above this difference of the clocks a service may refuse an assertion. */
const TOLERATED_CLOCK_MS = 30_000

/** Says that the clock is wrong: a service says no more than that the assertion is not valid. */
function withClock(outcome: ServiceOutcome, aheadMs: number): ServiceOutcome {
  if (outcome.kind === 'ok' || Math.abs(aheadMs) <= TOLERATED_CLOCK_MS) return outcome
  const off = `${formatDuration(Math.abs(aheadMs))} ${aheadMs > 0 ? 'behind' : 'ahead of'}`
  const detail = `${outcome.detail}; this host's clock is ${off} that of the service: set it`
  return { ...outcome, detail }
}

function certificateOf({ further = {} }: Credentials): { cert: string; key: string } | null {
  const cert = further['request.clientCertificate.certFile']
  const key = further['request.clientCertificate.key']
  return cert && key ? { cert: cert.reveal(), key: key.reveal() } : null
}

/** Reports whether `refusals` still names this earlier one. */
export function isNamedRefusal(
  { refusals }: ServiceConfig,
  { status, reason, says }: Pick<Refusal, 'status' | 'reason' | 'says'>,
): boolean {
  return refusals.some(
    (named) =>
      named.status === status &&
      named.reason === reason &&
      (says === null || bare(named.says) === bare(says)),
  )
}
