// The source of tokens that a configuration makes: the service alone, or, with `share`, the fleet between it
// and the keeper. Without `share` none of the fleet's code is loaded.
import type { Config } from '../config/config.ts'
import { accountText, isSameService, pairText } from '../config/pair.ts'
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { untilAborted } from '../lib/tasks.ts'
import type { Account, Share, ShareOptions } from '../share/share.ts'
import { assertionReader, type FetchTokenOptions } from '../source/fetch-token.ts'
import type { StateStore } from '../storage/state-store.ts'
import type { Keeper, Source as PairSource } from '../token/keeper.ts'
import type { FetchToken } from '../token/outcome.ts'
import { refusalOf, usableToken, usableUntilMs } from '../token/selectors.ts'
import type { Files } from '../token/transitions.ts'

export interface SourceOptions {
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  readonly store: Pick<StateStore, 'fingerprintOf' | 'load' | 'save'>
  readonly createFetchToken: (options: FetchTokenOptions) => FetchToken
  /** The shared store; Redis, unless it is given. */
  readonly openStore?: ShareOptions['open']
}

/** A pair, and how it is asked. */
export interface Source extends PairSource {
  /** Null: this host does not share. */
  readonly account: Account | null
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
    const [state, now] = [keeper().state(), clock.now()]
    const token = usableToken(state, now)
    if (token === null) return null
    const { pair: pairId, accessToken, expirySource, received, expiresAtMs: endsMs } = token
    const ends = { endsMs, usableUntilMs: usableUntilMs(state, now) }
    return { pairId, accessToken, expirySource, receivedMs: received.bootMs, ...ends }
  }

  return {
    /** The source of this configuration. Throws UserError. */
    of(config: Config): Source {
      const { service, pair, share: sharing, request, policy } = config
      const id = store.fingerprintOf(pairText(pair))
      const fromService = createFetchToken({ ...config, env, clock, secrets })
      const account = sharing && {
        share: sharing,
        pairId: id,
        text: JSON.stringify([service.baseUrl, service.tokenUrl, accountText(pair)]),
        hasOwnProof: pair.clientCertificate !== null || pair.assertion?.kind === 'ready',
        fetchToken: fromService,
        requestTimeoutMs: request.timeoutMs,
        maxAgeMs: policy.maxAgeMs,
      }
      const shared: FetchToken = async (...attempt) => (await loadShare()).attempt(account!, ...attempt)
      const fetchToken = account === null ? fromService : shared
      return { id, account, fetchToken, readAssertion: assertionReader(pair) }
    },
    /** Fingerprint of the pair of this configuration. */
    idOf: (config: Config): string => store.fingerprintOf(pairText(config.pair)),
    isSameService: (one: Config, other: Config): boolean => isSameService(one.service, other.service),
    /** What this configuration tells the keeper. */
    filesOf(config: Config, { id }: Source): Files {
      const { service, policy } = config
      const { baseUrl, tokenUrl, use, refusedBy } = service
      const serviceId = store.fingerprintOf(JSON.stringify([baseUrl, tokenUrl]))
      return { service: { id: serviceId, baseUrl, use, refusedBy }, policy, pair: id }
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
