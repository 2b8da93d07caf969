// The sessions of a host that shares: that of the configuration in use, and those of credentials that are
// tried.
import { hostname } from 'node:os'
import type { Config, ShareConfig } from '../config/config.ts'
import { isSame } from '../lib/secret.ts'
import { untilAborted } from '../lib/tasks.ts'
import type { StatusResult } from '../protocol.ts'
import type { FetchOutcome, FetchToken } from '../token/outcome.ts'
import { openRedisStore } from './redis-store.ts'
import type { Service } from './request.ts'
import { createSeal, type Seal } from './seal.ts'
import { createSession, type Session, type SessionOptions } from './session.ts'
import type { Store } from './store.ts'

/** A configuration with the way to its service. Its identity counts. */
export interface Account {
  readonly config: Config & { readonly share: ShareConfig }
  readonly credentialsId: string
  readonly service: Service
}

export interface FleetOptions extends Pick<SessionOptions, 'clock' | 'random' | 'log' | 'hostId'> {
  readonly keeper: Omit<SessionOptions['keeper'], 'isUsing'>
  /** Redis, unless it is given. */
  readonly openStore?: ((...account: Parameters<typeof openRedisStore>) => Promise<Store>) | undefined
}

interface Entry {
  /** A reload that changes neither credentials nor store replaces it: a request under way goes on. */
  account: Account
  readonly seal: Seal
  readonly session: Promise<Session>
  opened: Session | null
  readonly stop: AbortController
  readonly running: Promise<void>
}

export type Fleet = ReturnType<typeof createFleet>

export function createFleet({ keeper, openStore = openRedisStore, ...around }: FleetOptions) {
  const entries = new Set<Entry>()
  let current: Entry | null = null
  const failed = Promise.withResolvers<never>()

  /** The session of the account, which runs from now on. */
  function entryOf(account: Account): Entry {
    for (const entry of entries) if (entry.account === account) return entry
    const { baseUrl, service, credentials, share } = account.config
    const seal = createSeal({ baseUrl, description: service.description, credentials, key: share.key })
    const stop = new AbortController()
    const session = openSession({ account, seal }, () => entry)
    const running = session.then((opened) => {
      entry.opened = opened
      return opened.run(stop.signal)
    })
    const entry: Entry = { account, seal, session, opened: null, stop, running }
    // Without a listener a failure would end the process before it is reported.
    running.catch(failed.reject)
    entries.add(entry)
    return entry
  }

  async function openSession(
    { account, seal }: Pick<Entry, 'account' | 'seal'>,
    entry: () => Entry,
  ): Promise<Session> {
    const { config, credentialsId } = account
    const { share } = config
    const store = await openStore(share, { ...around, accountKey: seal.accountKey })
    return createSession({
      ...around,
      store,
      seal,
      share,
      host: share.host ?? hostname(),
      credentialsId,
      service: () => entry().account.service,
      hasOwnProof: () => hasOwnProof(entry().account.config),
      isCertificateTrial: () => current !== entry() && current?.seal.accountKey === seal.accountKey,
      keeper: { ...keeper, isUsing: () => current === entry() },
    })
  }

  function end(entry: Entry): void {
    entries.delete(entry)
    entry.stop.abort()
  }

  return {
    /** One attempt with this account, which is in use or is tried. */
    attempt: async (account: Account, ...attempt: Parameters<FetchToken>): Promise<FetchOutcome> =>
      (await entryOf(account).session).fetchToken(...attempt),
    /** This account is in use from now on; null: this host shares no more. */
    use(account: Account | null): void {
      if (current !== null && account !== null && hasSameStore(current.account, account)) {
        current.account = account
        return
      }
      if (current !== null) end(current)
      current = account && entryOf(account)
    },
    /** The account was tried, and is not used. */
    drop(account: Account): void {
      for (const entry of entries) if (entry.account === account && entry !== current) end(entry)
    },
    /** Ends the sessions when the signal is aborted. Rejects as they do. */
    async run(signal: AbortSignal): Promise<void> {
      await Promise.race([untilAborted(signal), failed.promise])
      const all = [...entries]
      for (const entry of all) entry.stop.abort()
      await Promise.all(all.map(({ running }) => running))
    },
    /** Null: no session has begun. */
    status: (): StatusResult['share'] => current?.opened?.status() ?? null,
    sample: () => current?.opened?.sample() ?? null,
  }
}

/** Reports whether the host proves itself with something of its own. */
function hasOwnProof({ credentials, service }: Config): boolean {
  const hasCertificate = credentials.further?.['request.clientCertificate.certFile'] !== undefined
  return hasCertificate || (service.assertion?.file ?? null) !== null
}

function hasSameStore(one: Account, other: Account): boolean {
  return one.credentialsId === other.credentialsId && isSame(one.config.share, other.config.share)
}
