// A session with the shared store: the seal of one account, its store in Redis, and the token that is shared there. Loaded only with `share`.
import { hostname } from 'node:os'
import type { Config, ShareConfig } from '../config/config.ts'
import type { MemberOptions } from './member.ts'
import { openRedisStore } from './redis-store.ts'
import { createSeal } from './seal.ts'
import { shareToken, type ShareToken } from './share-token.ts'

export { checkStore } from './check-store.ts'

export type OpenStore = typeof openRedisStore

/** Connects in the background: never fails. */
export async function openSession(
  { baseUrl, service, credentials, share }: Config & { readonly share: ShareConfig },
  {
    openStore = openRedisStore,
    ...options
  }: Omit<MemberOptions, 'store' | 'seal' | 'host' | 'share'> & { openStore?: OpenStore | undefined },
): Promise<ShareToken> {
  const seal = createSeal({ baseUrl, description: service.description, credentials, key: share.key })
  const host = share.host ?? hostname()
  const store = await openStore(share, { accountKey: seal.accountKey, host, ...options })
  return shareToken({ ...options, store, seal, host, share })
}
