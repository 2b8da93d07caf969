// The source of tokens that a configuration makes: the service alone, or, with `share`, the fleet between it
// and the keeper. Without `share` none of the fleet's code is loaded.
import type { Config } from '../config/config.ts'
import { partsOf } from '../config/next/adapt.ts'
import { accountText } from '../config/next/pair.ts'
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { untilAborted } from '../lib/tasks.ts'
import type { Account, Share, ShareOptions } from '../share/share.ts'
import { isNamedRefusal } from '../source/failures.ts'
import type { FetchTokenOptions } from '../source/fetch-token.ts'
import type { StateStore } from '../storage/state-store.ts'
import type { Keeper, RefreshSettings } from '../token/keeper.ts'
import type { FetchToken } from '../token/outcome.ts'
import { refusalOf, usableToken, usableUntilMs } from '../token/selectors.ts'

export interface SourceOptions {
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  readonly store: StateStore
  readonly createFetchToken: (options: FetchTokenOptions) => FetchToken
  /** The shared store; Redis, unless it is given. */
  readonly openStore?: ShareOptions['open']
}

export interface Source {
  /** Null: this host does not share. */
  readonly account: Account | null
  readonly settings: RefreshSettings
}

/** `keeper`: the one that uses the sources. `secrets`: what no detail of an answer may hold. */
export function createSources({
  keeper,
  secrets,
  ...options
}: SourceOptions & { readonly keeper: () => Keeper; readonly secrets: () => string[] }) {
  const { env, clock, random, log, store, createFetchToken, openStore } = options
  /** Begins at the first attempt that shares: clients that wait for the start come first. */
  let loading: Promise<Share> | null = null
  let share: Share | null = null
  let current: Source | null = null
  const shares = Promise.withResolvers<void>()

  function loadShare(): Promise<Share> {
    loading ??= import('../share/share.ts').then(({ createShare }) => {
      const isRefused = (): boolean => refusalOf(keeper().state()) !== null
      const offer: Keeper['offer'] = (outcome) => keeper().offer(outcome)
      share = createShare({ clock, random, log, open: openStore, keeper: { held, isRefused, offer } })
      share.use(current!.account)
      return share
    })
    shares.resolve()
    return loading
  }

  function held(): ReturnType<ShareOptions['keeper']['held']> {
    const token = usableToken(keeper().state(), clock.now())
    if (token === null) return null
    const { credentialsId: pairId, accessToken, expirySource, received, expiresAtMs: endsMs } = token
    const receivedMs = received.bootMs
    return { pairId, accessToken, expirySource, receivedMs, endsMs, usableUntilMs: usableUntilMs(token) }
  }

  return {
    /** The source of this configuration. Throws UserError. */
    of(config: Config): Source {
      const { baseUrl, service, retry, refresh, request } = config
      const credentialsId = store.credentialsIdOf(baseUrl, config.credentials, service.description)
      const parts = partsOf(config)
      const fromService = createFetchToken({ ...parts, env, clock, secrets })
      const { pair, share: sharing } = parts
      const account = sharing && {
        share: sharing,
        pairId: credentialsId,
        text: JSON.stringify([baseUrl, service.tokenUrl, accountText(pair)]),
        hasOwnProof: pair.clientCertificate !== null || pair.assertion?.kind === 'ready',
        fetchToken: fromService,
        requestTimeoutMs: request.timeoutMs,
        maxAgeMs: refresh.maxAgeMs,
      }
      const shared: FetchToken = async (...attempt) => (await loadShare()).attempt(account!, ...attempt)
      const settings: RefreshSettings = {
        fetchToken: account === null ? fromService : shared,
        policy: { ...retry, ...refresh },
        baseUrl,
        credentialsId,
        refusedBy: service.refusedBy,
        use: service.use,
        isNamedRefusal: (refusal) => isNamedRefusal(service, refusal),
      }
      return { account, settings }
    },
    /** This source is in use from now on. */
    use(next: Source): void {
      const isFirst = current === null
      current = next
      share?.use(next.account)
      if (next.account !== null && !isFirst) void loadShare()
    },
    /** One token for all hosts of the account. */
    sharing: {
      async run(signal: AbortSignal): Promise<void> {
        if (current?.account) void loadShare()
        await Promise.race([shares.promise, untilAborted(signal)])
        await (await loading)?.run(signal)
      },
      /** Null: this host does not share, or has not begun to. */
      status: () => share?.status() ?? null,
      sample: () => share?.sample() ?? null,
    },
  }
}
