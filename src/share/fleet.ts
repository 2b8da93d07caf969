// Sharing as the daemon sees it: off, or a session with the store for the configuration in use.
import { hostname } from 'node:os'
import type { Config } from '../config/config.ts'
import { isSame } from '../lib/secret.ts'
import { untilAborted } from '../lib/tasks.ts'
import type { StatusResult } from '../protocol.ts'
import type { FetchOutcome, FetchToken } from '../token/outcome.ts'
import { refusalOf } from '../token/state.ts'
import type { Token } from '../token/token.ts'
import type { ResumeState } from './share-state.ts'
import type { MemberOptions, OpenStore, ShareToken, SharingConfig } from './share-token.ts'

export interface Sharing {
  readonly fetchToken: FetchToken
  /** The fleet uses this from now on. */
  use(): void
  /** It is not used: its connections are closed. */
  drop(): void
}

interface Session {
  readonly credentialsId: string
  readonly config: SharingConfig
  service: ReturnType<MemberOptions['service']>
  /** Opens it once: at the first attempt, or when it is run. */
  open(): Promise<ShareToken>
  opening: Promise<ShareToken> | null
  opened: ShareToken | null
}

export interface FleetOptions extends Pick<MemberOptions, 'clock' | 'random' | 'log' | 'keeper'> {
  /** Redis, unless it is given. */
  readonly openStore?: OpenStore | undefined
  /** The facts about the fleet that were saved with the credentials of the start. */
  readonly saved: () => { readonly fence: number; readonly hosts: number }
}

export function createFleet(options: FleetOptions) {
  const { keeper } = options
  let current: Session | null = null
  /** The states of former sessions, by their credentials. */
  const formerStates = new Map<string, ResumeState>()
  let changed = new AbortController()

  function resumeStateOf(
    credentialsId: string,
    { host, isFirst }: { host: string; isFirst: boolean },
  ): ResumeState {
    const { fence, hosts } = isFirst ? options.saved() : { fence: 0, hosts: 0 }
    const saved = { adoptedFence: fence, highestFence: fence, own: null, hosts: hosts || null }
    const known = formerStates.get(credentialsId) ?? saved
    const { token: held } = keeper.state()
    const refusal = refusalOf(keeper.state())
    const token = held?.credentialsId === credentialsId ? held : null
    const adoptedFence = token === null && refusal === null ? 0 : known.adoptedFence
    const own = token !== null && adoptedFence === 0 ? ownOf(token, host) : null
    return { ...known, adoptedFence, own: known.own ?? own }
  }

  function createSession(config: SharingConfig, credentialsId: string, service: Session['service']): Session {
    const host = config.share.host ?? hostname()
    const isFirst = current === null
    const open = async (): Promise<ShareToken> => {
      const { openSession } = await import('./share-token.ts')
      const offer = (outcome: FetchOutcome): boolean => current === session && keeper.offer(outcome)
      session.opened = await openSession(config, {
        ...options,
        host,
        credentialsId,
        service: () => session.service,
        resumeState: resumeStateOf(credentialsId, { host, isFirst }),
        keeper: { ...keeper, offer },
      })
      return session.opened
    }
    const session: Session = {
      credentialsId,
      config,
      service,
      opening: null,
      opened: null,
      open: () => (session.opening ??= open()),
    }
    return session
  }

  /** Stores the state of a session that ends. If other credentials follow, the keeper will have to adopt the record again later. */
  function leave({ credentialsId, opened }: Session, next: Session | null): void {
    const known = opened?.resumeState() ?? formerStates.get(credentialsId)
    if (known === undefined) return
    const isGoingOn = next?.credentialsId === credentialsId
    formerStates.set(credentialsId, isGoingOn ? known : { ...known, adoptedFence: 0, own: null })
  }

  function switchTo(next: Session | null): void {
    if (next === current) return
    if (current !== null) leave(current, next)
    current = next
    changed.abort()
  }

  return {
    /** The request to the service, for the whole fleet if the configuration has `share`. */
    sharing(config: Config, credentialsId: string, fetchToken: FetchToken): Sharing {
      const { share, request, retry } = config
      if (share === null) return { fetchToken, use: () => switchTo(null), drop: () => undefined }
      const service = { fetchToken, requestTimeoutMs: request.timeoutMs, retry }
      // A reload that changes neither credentials nor store leaves a request under way alone.
      const isKept = current?.credentialsId === credentialsId && isSame(current.config.share, share)
      const same = isKept ? current : null
      const session = same ?? createSession({ ...config, share }, credentialsId, service)
      return {
        fetchToken: async (signal, attempt) => (await session.open()).fetchToken(signal, attempt),
        use() {
          session.service = service
          switchTo(session)
        },
        drop() {
          if (session === same) return
          leave(session, null)
          void session.opening?.then((token) => token.close())
        },
      }
    },
    async run(signal: AbortSignal): Promise<void> {
      while (!signal.aborted) {
        changed = new AbortController()
        const until = AbortSignal.any([signal, changed.signal])
        const session = await current?.open()
        await (session === undefined ? untilAborted(until) : session.run(until))
      }
    },
    /** Null: this host does not share, or has not begun to. */
    status: (): StatusResult['share'] => current?.opened?.status() ?? null,
    sample: () => current?.opened?.sample() ?? null,
  }
}

/** A token that this host obtained by itself before it was restarted, or before it shared. */
function ownOf({ accessToken, lifeMs, expirySource, received }: Token, by: string): ResumeState['own'] {
  const record = { kind: 'ok', accessToken, lifeMs, expirySource, ageMs: 0, by, isAlone: true } as const
  return { record, obtainedAtMs: received.bootMs }
}
