// Sharing as the daemon sees it: off, or a session with the store for the configuration in use.
import { hostname } from 'node:os'
import { isDeepStrictEqual } from 'node:util'
import type { Config, ShareConfig } from '../config/config.ts'
import { untilAborted } from '../lib/tasks.ts'
import type { StatusResult } from '../protocol.ts'
import type { FetchOutcome, FetchToken } from '../token/outcome.ts'
import type { SavedFleet } from '../token/state.ts'
import type { Token } from '../token/token.ts'
import type { KeeperPort, MemberOptions, ServiceSettings } from './member.ts'
import type { Remembered } from './share-state.ts'
import type { OpenStore, ShareToken } from './share-token.ts'

export interface Fleet {
  /** The request to the service, for the whole fleet if the configuration has `share`. */
  sharing(config: Config, credentialsId: string, fetchToken: FetchToken): Sharing
  /** Listens to the store until the signal is aborted. */
  run(signal: AbortSignal): Promise<void>
  /** Null: this host does not share, or has not begun to. */
  status(): StatusResult['share']
  sample(): ReturnType<ShareToken['sample']> | null
  /** Null: this host does not share. */
  saved(): SavedFleet | null
}

export interface Sharing {
  readonly fetchToken: FetchToken
  /** The fleet uses this from now on. */
  use(): void
  /** It is not used: its connections are closed. */
  drop(): void
}

interface Session {
  readonly credentialsId: string
  readonly share: ShareConfig
  service: ServiceSettings
  /** Opens it once: at the first attempt, or when it is run. */
  open(): Promise<ShareToken>
  opening: Promise<ShareToken> | null
  opened: ShareToken | null
  remembered(): Remembered
}

export interface FleetOptions extends Pick<MemberOptions, 'clock' | 'random' | 'log'> {
  /** Redis, unless it is given. */
  readonly openStore?: OpenStore | undefined
  /** The knowledge of the process before this one about the credentials of the start. */
  readonly saved: () => SavedFleet
  readonly keeper: KeeperPort
}

/** A longer row of credentials is not worth remembering. */
const MAX_FORMER = 16

export function createFleet(options: FleetOptions): Fleet {
  const { keeper } = options
  let current: Session | null = null
  /** The newest fences of former sessions, by their credentials. */
  const formerFences = new Map<string, number>()
  let changed = new AbortController()

  /** A session with the same credentials as the one before knows what that one did; another one does not. */
  function rememberedAfter(
    former: Session | null,
    { credentialsId, host }: { credentialsId: string; host: string },
  ): Remembered {
    if (former?.credentialsId === credentialsId) return former.remembered()
    const saved = former === null ? options.saved() : { fence: 0, hosts: 0 }
    const highestFence = Math.max(saved.fence, formerFences.get(credentialsId) ?? 0)
    const { token: held, refusal } = keeper.state()
    const token = held?.credentialsId === credentialsId ? held : null
    return {
      adoptedFence: token !== null || refusal !== null ? saved.fence : 0,
      highestFence,
      own: token === null || saved.fence > 0 ? null : ownOf(token, host),
      hosts: saved.hosts === 0 ? null : saved.hosts,
    }
  }

  function createSession(
    { config, share, credentialsId }: { config: Config; share: ShareConfig; credentialsId: string },
    service: ServiceSettings,
  ): Session {
    const account = { credentialsId, host: share.host ?? hostname() }
    // When it is opened, it may be the current one itself.
    let former = current
    const open = async (): Promise<ShareToken> => {
      const { openSession } = await import('./share-token.ts')
      const opened = await openSession(
        { ...config, share },
        {
          ...options,
          host: account.host,
          service: () => session.service,
          remembered: rememberedAfter(former, account),
          keeper: {
            ...keeper,
            offer: (outcome: FetchOutcome) => current === session && keeper.offer(outcome),
          },
        },
      )
      former = null
      session.opened = opened
      return opened
    }
    const session: Session = {
      credentialsId,
      share,
      service,
      opening: null,
      opened: null,
      open: () => (session.opening ??= open()),
      remembered: () => session.opened?.remembered() ?? rememberedAfter(former, account),
    }
    return session
  }

  return {
    sharing(config, credentialsId, fetchToken) {
      const { share, request, retry } = config
      if (share === null) {
        return { fetchToken, use: () => switchTo(null), drop: () => undefined }
      }
      const service = { fetchToken, requestTimeoutMs: request.timeoutMs, retry }
      // A reload that changes neither credentials nor store leaves a request under way alone.
      const isSame = current?.credentialsId === credentialsId && isSameStore(current.share, share)
      const same = isSame ? current : null
      const session = same ?? createSession({ config, share, credentialsId }, service)
      return {
        fetchToken: async (signal, attempt) => (await session.open()).fetchToken(signal, attempt),
        use() {
          session.service = service
          switchTo(session)
        },
        drop() {
          if (session === same) return
          leave(session)
          void session.opening?.then((token) => token.close())
        },
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
    status: () => current?.opened?.status() ?? null,
    sample: () => current?.opened?.sample() ?? null,
    saved() {
      const remembered = current?.opened?.remembered()
      if (remembered === undefined) return null
      const { own, adoptedFence, hosts } = remembered
      return { fence: own === null ? adoptedFence : 0, hosts: hosts ?? 0 }
    },
  }

  function leave(session: Session): void {
    const { credentialsId } = session
    const fence = session.opened?.remembered().highestFence
    if (fence === undefined) return
    formerFences.set(credentialsId, fence)
    const [oldest] = formerFences.keys()
    if (formerFences.size > MAX_FORMER && oldest !== undefined) formerFences.delete(oldest)
  }

  function switchTo(next: Session | null): void {
    if (next === current && next !== null) return
    if (current !== null) leave(current)
    current = next
    changed.abort()
  }
}

/** A token that this host obtained by itself before it was restarted, or before it shared. */
function ownOf({ accessToken, lifeMs, expirySource, received }: Token, by: string): Remembered['own'] {
  const record = { kind: 'ok', accessToken, lifeMs, expirySource, ageMs: 0, by, isAlone: true } as const
  return { record, obtainedAtMs: received.bootMs }
}

/** Secrets compare by their values, which no comparison of objects sees. */
function isSameStore(one: ShareConfig, other: ShareConfig): boolean {
  return isDeepStrictEqual(one, other) && isDeepStrictEqual(secretsOf(one), secretsOf(other))
}
function secretsOf({ password, key, sentinel, tls }: ShareConfig): (string | undefined)[] {
  return [password, key, sentinel?.password, tls?.key].map((secret) => secret?.reveal())
}
