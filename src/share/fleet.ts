// The sessions of a host that shares: that of the configuration in use, and those of credentials that are
// tried.
import { hostname } from 'node:os'
import { isSame } from '../lib/secret.ts'
import { untilAborted } from '../lib/tasks.ts'
import type { StatusResult } from '../protocol.ts'
import type { FetchOutcome, FetchToken } from '../token/outcome.ts'
import type { Service } from './request.ts'
import {
  openSession,
  type OpenStore,
  type Session,
  type SessionOptions,
  type SharingConfig,
} from './session.ts'

/** A configuration with the way to its service. Its identity counts. */
export interface Account {
  readonly config: SharingConfig
  readonly credentialsId: string
  readonly service: Service
}

export interface FleetOptions extends Pick<SessionOptions, 'clock' | 'random' | 'log'> {
  readonly keeper: Omit<SessionOptions['keeper'], 'isUsing'>
  /** Redis, unless it is given. */
  readonly openStore?: OpenStore | undefined
}

interface Entry {
  /**
   * A reload that changes neither credentials nor store replaces it, and leaves a request under way alone.
   */
  account: Account
  readonly session: Promise<Session>
  opened: Session | null
  readonly stop: AbortController
  running: Promise<void>
}

export type Fleet = ReturnType<typeof createFleet>

export function createFleet(options: FleetOptions) {
  const { keeper } = options
  const entries = new Set<Entry>()
  let current: Entry | null = null
  const failed = Promise.withResolvers<never>()

  /** The session of the account, which runs from now on. */
  function entryOf(account: Account): Entry {
    for (const entry of entries) if (entry.account === account) return entry
    const { config, credentialsId } = account
    const stop = new AbortController()
    const session = openSession(config, {
      ...options,
      host: config.share.host ?? hostname(),
      credentialsId,
      service: () => entry.account.service,
      keeper: { ...keeper, isUsing: () => current === entry },
    })
    const entry: Entry = { account, session, opened: null, stop, running: Promise.resolve() }
    entry.running = session.then((opened) => {
      entry.opened = opened
      return opened.run(stop.signal)
    })
    // Without a listener a failure would end the process before it is told.
    entry.running.catch(failed.reject)
    entries.add(entry)
    return entry
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
      const isKept =
        account !== null &&
        current?.account.credentialsId === account.credentialsId &&
        isSame(current.account.config.share, account.config.share)
      if (isKept && current !== null) {
        current.account = account
        return
      }
      const former = current
      current = account && entryOf(account)
      if (former !== null) end(former)
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
