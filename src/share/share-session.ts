// A session with the shared store: the seal of one account, its store in Redis, and the token that is shared there. Loaded only with `share`.
import { hostname } from 'node:os'
import type { Config, ShareConfig } from '../config/config.ts'
import type { FetchToken } from '../token/outcome.ts'
import { aclLine } from './acl.ts'
import { openRedisStore } from './redis-store.ts'
import { createSeal } from './seal.ts'
import { shareToken, type ShareToken, type ShareTokenOptions } from './share-token.ts'

export { checkStore } from './check-store.ts'

export type SharingConfig = Pick<Config, 'baseUrl' | 'credentials' | 'request' | 'retry'> & {
  readonly share: ShareConfig
}

/** Connects in the background: never fails. */
export async function openSession(
  { baseUrl, credentials, request, retry, share }: SharingConfig,
  fetchToken: FetchToken,
  options: Pick<ShareTokenOptions, 'clock' | 'random' | 'log' | 'saved' | 'keeper'>,
): Promise<ShareToken> {
  const seal = createSeal({ baseUrl, credentials, key: share.key })
  const host = share.host ?? hostname()
  const store = await openRedisStore(share, { subject: seal.subject, host })
  return shareToken(fetchToken, {
    ...options,
    store,
    seal,
    host,
    requestTimeoutMs: request.timeoutMs,
    retry,
    asks: share.asks,
    whenAlone: share.whenAlone,
    aclLine: aclLine(share),
  })
}
