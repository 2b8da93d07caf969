// One attempt at the service: asks for a token once, and says what came of it.
import type { SecureContext } from 'node:tls'
import { createSecureContext } from '../config/certificates.ts'
import type { PairConfig, RequestConfig, ServiceConfig } from '../config/config.ts'
import { revealAll } from '../config/pair.ts'
import { withTimeout, type Clock } from '../lib/clock.ts'
import type { Attempt, ServiceOutcome, TransientFailure } from '../token/outcome.ts'
import { dateOf, type ServiceResponse } from './answer.ts'
import type { ReadyAssertion } from './assertion.ts'
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
  /** Gets each answer as it came; for `check`. */
  readonly onAnswer?: (answer: ServiceResponse) => void
  /** Further texts that no detail may hold, such as the tokens held; those of the pair are known anyway. */
  readonly secrets: () => Iterable<string>
}

const FILE = 'service.assertion.file'

/** The assertion of one attempt; empty: the service takes none. */
interface Assertion {
  readonly text: string
  /** Of one that is signed here: its `iat`, in ms. */
  readonly iatMs?: number
}

/**
 * Returns the function that asks this service with these credentials, by one request at most. That function
 * never throws for anything that service or network does, follows no redirect, keeps no connection, and ends
 * promptly when its signal is aborted. This one throws UserError (78) if the environment names a proxy that
 * cannot be used.
 */
export function createFetchToken(options: FetchTokenOptions) {
  const { service, pair, request, clock } = options
  const { assertion: how, clientCertificate } = pair
  const proxy = proxyOf(new URL(service.tokenUrl), { proxy: request.proxy, env: options.env })
  const own = clientCertificate && { ...clientCertificate, key: clientCertificate.key.reveal() }
  const classify = createClassify({ service, pair })
  /** Made once: each context takes memory. */
  let context: Promise<SecureContext> | null = null
  /** The last `Date` of an answer, in ms since the epoch, and when it came on the boot clock. */
  let dated: { readonly dateMs: number; readonly bootMs: number } | null = null
  let reading: Promise<ReadyAssertion> | null = null

  async function assertionNow(): Promise<Assertion | TransientFailure> {
    if (how === null) return { text: '' }
    const { readAssertion, signedAssertion } = await import('./assertion.ts')
    const now = clock.now()
    // By the service's clock: ours may be wrong, and may be set meanwhile.
    const wallMs = dated === null ? now.wallMs : dated.dateMs + now.bootMs - dated.bootMs
    if (how.kind === 'signed') {
      const { tokenUrl } = service
      return { text: await signedAssertion(how, { issuer: pair.apiKey!, tokenUrl, wallMs }), iatMs: wallMs }
    }
    const { file } = how
    // One reading at a time: a disk that hangs holds one thread.
    reading ??= readAssertion(file, wallMs).finally(() => (reading = null))
    const read = (await withTimeout(request.connectTimeoutMs, reading, clock)) ?? {
      problem: 'cannot be read: its disk does not answer',
    }
    if ('text' in read) return read
    return { kind: 'transient', reason: 'assertion', detail: `The file ${file} (${FILE}) ${read.problem}` }
  }

  async function fetchToken(signal: AbortSignal, attempt?: Omit<Attempt, 'cause'>): Promise<ServiceOutcome> {
    const assertion = await assertionNow()
    if ('kind' in assertion) return assertion
    await attempt?.beforeRequest()
    // Loaded late: with a kept token the first attempt comes long after the start.
    const { exchange } = await import('./exchange.ts')
    if (service.tokenUrl.startsWith('https:')) context ??= createSecureContext(request, own)
    const answer = await exchange(serviceRequest(service, pair, assertion.text), {
      limits: request,
      proxy,
      hostSetting: service.hostSetting,
      secureContext: await context,
      clock,
      signal,
      onSent: attempt?.onSent,
    })
    if ('kind' in answer) return answer
    options.onAnswer?.(answer)
    const { wallMs, bootMs } = clock.now()
    const dateMs = dateOf(answer)
    if (dateMs !== undefined) dated = { dateMs, bootMs }
    const known = revealAll({ pair, request, share: null })
    const secrets = [assertion.text, ...known, ...options.secrets()]
    return classify(answer, { wallMs, secrets, iatMs: assertion.iatMs }).outcome
  }

  return fetchToken
}
