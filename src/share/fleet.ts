// Sharing as the daemon sees it: off, or a session with the store for the configuration in use.
import type { Config } from '../config/config.ts'
import { untilAborted } from '../lib/abort.ts'
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import type { FetchOutcome, FetchToken } from '../token/outcome.ts'
import type { ShareSample } from './share-counts.ts'
import type { SharingConfig } from './share-session.ts'
import type { ShareToken, ShareTokenOptions } from './share-token.ts'

/** The facts that a restart has to know. */
export interface SavedFleet {
  readonly fence: number
  readonly hosts: number
}

export interface Fleet {
  /** The request to the service, for the whole fleet where the configuration has `share`. */
  sharing(config: Config, credentialsId: string, fetchToken: FetchToken): Sharing
  /** Listens to the store until the signal is aborted. */
  run(signal: AbortSignal): Promise<void>
  /** Null: this host does not share, or has not begun to. */
  status(): StatusResult['share']
  sample(): (ShareSample & Pick<NonNullable<StatusResult['share']>, 'state' | 'hosts'>) | null
  /** Null: this host does not share. */
  saved(): SavedFleet | null
}

export interface Sharing {
  readonly fetchToken: FetchToken
  /** The fleet goes on with this. */
  use(): void
  /** It is not used: its connections are closed. */
  drop(): void
}

interface Session {
  readonly credentialsId: string
  /** Opened at the first attempt or when it is run. */
  open(): Promise<ShareToken>
  opened(): ShareToken | null
  close(): Promise<void>
  /** The knowledge of this host about the records of these credentials. */
  known(): ShareTokenOptions['saved']
}

export interface FleetOptions {
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  /** The knowledge of the process before this one about the credentials of the start. */
  readonly saved: () => SavedFleet
  readonly keeper: ShareTokenOptions['keeper'] & {
    /** Reports whether it holds anything that the saved fence is about. */
    readonly holdsRecord: () => boolean
  }
}

export function createFleet(options: FleetOptions): Fleet {
  const { keeper } = options
  let current: Session | null = null
  let changed = new AbortController()

  /** A store with the same credentials as the session before has what this host has already; another one has not. */
  function knownAfter(former: Session | null, credentialsId: string): ShareTokenOptions['saved'] {
    if (former?.credentialsId === credentialsId) return former.known()
    if (former !== null) return { seen: 0, floor: 0, hosts: null }
    const { fence, hosts } = options.saved()
    return { seen: keeper.holdsRecord() ? fence : 0, floor: fence, hosts: hosts === 0 ? null : hosts }
  }

  function prepare(config: SharingConfig & Config, credentialsId: string, fetchToken: FetchToken): Session {
    let opening: Promise<ShareToken> | null = null
    let opened: ShareToken | null = null
    // When it is opened, it may be the current one itself.
    let former = current
    const open = async (): Promise<ShareToken> => {
      const { openSession } = await import('./share-session.ts')
      opened = await openSession(config, fetchToken, {
        ...options,
        saved: knownAfter(former, credentialsId),
        keeper: {
          ...keeper,
          offer: (outcome: FetchOutcome) => current === session && keeper.offer(outcome),
        },
      })
      former = null
      return opened
    }
    const session: Session = {
      credentialsId,
      open: () => (opening ??= open()),
      opened: () => opened,
      async close() {
        const unused = await opening
        unused?.close()
      },
      known: () => opened?.saved() ?? knownAfter(former, credentialsId),
    }
    return session
  }

  return {
    sharing(config, credentialsId, fetchToken) {
      const { share } = config
      const session = share === null ? null : prepare({ ...config, share }, credentialsId, fetchToken)
      return {
        fetchToken:
          session === null
            ? fetchToken
            : async (signal, attempt) => (await session.open()).fetchToken(signal, attempt),
        use() {
          current = session
          changed.abort()
        },
        drop: () => void session?.close(),
      }
    },
    async run(signal) {
      while (!signal.aborted) {
        changed = new AbortController()
        const until = AbortSignal.any([signal, changed.signal])
        const session = await current?.open()
        await (session === undefined ? untilAborted(until) : session.run(until))
      }
    },
    status: () => current?.opened()?.status() ?? null,
    sample() {
      const session = current?.opened()
      if (!session) return null
      const { state, hosts } = session.status()
      return { ...session.sample(), state, hosts }
    },
    saved() {
      const saved = current?.opened()?.saved()
      return saved === undefined ? null : { fence: saved.seen, hosts: saved.hosts ?? 0 }
    },
  }
}
