// The source of tokens that a configuration makes: the service alone, or, with `share`, the fleet between it
// and the keeper. Without `share` none of the fleet's code is loaded.
import type { Config } from '../config/config.ts'
import { partsOf } from '../config/next/adapt.ts'
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { untilAborted } from '../lib/tasks.ts'
import type { Account, Fleet, FleetOptions } from '../share/fleet.ts'
import { isNamedRefusal } from '../source/failures.ts'
import type { FetchTokenOptions } from '../source/fetch-token.ts'
import type { StateStore } from '../storage/state-store.ts'
import type { Keeper, RefreshSettings } from '../token/keeper.ts'
import type { FetchToken } from '../token/outcome.ts'

export interface SourceOptions {
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  readonly store: StateStore
  readonly createFetchToken: (options: FetchTokenOptions) => FetchToken
  /** The shared store; Redis, unless it is given. */
  readonly openStore?: FleetOptions['openStore']
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
  let loading: Promise<Fleet> | null = null
  let fleet: Fleet | null = null
  let current: Source | null = null
  const shares = Promise.withResolvers<void>()

  function loadFleet(): Promise<Fleet> {
    loading ??= import('../share/fleet.ts').then(({ createFleet }) => {
      fleet = createFleet({
        clock,
        random,
        log,
        hostId: store.hostId,
        openStore,
        keeper: {
          offer: (outcome) => keeper().offer(outcome),
          state: () => keeper().state(),
          policy: () => current!.settings.policy,
        },
      })
      fleet.use(current!.account)
      return fleet
    })
    shares.resolve()
    return loading
  }

  return {
    /** The source of this configuration. Throws UserError. */
    of(config: Config): Source {
      const { baseUrl, service, retry, refresh, request, share } = config
      const credentialsId = store.credentialsIdOf(baseUrl, config.credentials, service.description)
      const fromService = createFetchToken({ ...partsOf(config), env, clock, secrets })
      const account = share && {
        config: { ...config, share },
        credentialsId,
        service: { fetchToken: fromService, requestTimeoutMs: request.timeoutMs },
      }
      const shared: FetchToken = async (...attempt) => (await loadFleet()).attempt(account!, ...attempt)
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
      fleet?.use(next.account)
      if (next.account !== null && !isFirst) void loadFleet()
    },
    /** Nothing is asked with this account any more, unless it is the one in use. */
    drop({ account }: Source): void {
      if (account !== null) fleet?.drop(account)
    },
    /** One token for all hosts of the account. */
    sharing: {
      async run(signal: AbortSignal): Promise<void> {
        if (current?.account) void loadFleet()
        await Promise.race([shares.promise, untilAborted(signal)])
        await (await loading)?.run(signal)
      },
      /** Null: this host does not share, or has not begun to. */
      status: () => fleet?.status() ?? null,
      sample: () => fleet?.sample() ?? null,
    },
  }
}
