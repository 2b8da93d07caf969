// The keeper with its source, the service: built from a configuration and the saved state, and moved to other
// configurations and credentials. With `share` the fleet stands between both; without it none of its code is
// loaded.
import { revealAll, type Config } from '../config/config.ts'
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { untilAborted } from '../lib/tasks.ts'
import type { Account, Fleet, FleetOptions } from '../share/fleet.ts'
import { isNamedRefusal, type FetchTokenOptions } from '../source/fetch-token.ts'
import { createAssertionWatch } from './assertion-watch.ts'
import type { StateStore } from '../storage/state-store.ts'
import { createKeeper, type Keeper, type RefreshSettings } from '../token/keeper.ts'
import type { FetchOutcome, FetchToken, TrialOptions } from '../token/outcome.ts'

export interface ConfiguredKeeperOptions {
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  readonly store: StateStore
  readonly createFetchToken: (options: FetchTokenOptions) => FetchToken
  /** The shared store; Redis, unless it is given. */
  readonly openStore?: FleetOptions['openStore']
}

interface Source {
  readonly config: Config
  /** Null: this host does not share. */
  readonly account: Account | null
  readonly settings: RefreshSettings
}

export async function createConfiguredKeeper(initial: Config, options: ConfiguredKeeperOptions) {
  const { env, clock, random, log, store, createFetchToken } = options
  /** Begins at the first attempt that shares: clients that wait for the start come first. */
  let loading: Promise<Fleet> | null = null
  let fleet: Fleet | null = null
  const shares = Promise.withResolvers<void>()

  function loadFleet(): Promise<Fleet> {
    loading ??= import('../share/fleet.ts').then(({ createFleet }) => {
      fleet = createFleet({
        clock,
        random,
        log,
        hostId: store.hostId,
        openStore: options.openStore,
        keeper: {
          offer: (outcome) => keeper.offer(outcome),
          state: () => keeper.state(),
          policy: () => source.settings.policy,
        },
      })
      fleet.use(source.account)
      return fleet
    })
    shares.resolve()
    return loading
  }

  function sourceOf(config: Config): Source {
    const { baseUrl, service, retry, refresh, request, share } = config
    const credentialsId = store.credentialsIdOf(baseUrl, config.credentials, service.description)
    const fromService = createFetchToken({ ...config, env, clock, secrets, onOtherType })
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
      refuses: (refusal) => isNamedRefusal(service, refusal),
    }
    return { config, account, settings }
  }

  /** The types that were logged: once each, however often the configuration is loaded. */
  const types = new Set<string>()
  function onOtherType(tokenType: string): void {
    if (types.has(tokenType)) return
    types.add(tokenType)
    log('warning', 'The service gives tokens that are not Bearer, and they are sent as such', {
      event: 'token-type',
      tokenType,
      remedy:
        'Set service.use as the API wants the token; one that wants a proof of a key (DPoP) cannot be used',
    })
  }

  function secrets(): string[] {
    return [...revealAll(source.config), ...revealAll(other), keeper.state().token?.accessToken ?? '']
  }

  function use(next: Source): void {
    other = source.config
    source = next
    fleet?.use(source.account)
    if (source.account !== null) void loadFleet()
  }

  let source = sourceOf(initial)
  /** The configuration that was in use before, or that was tried last. */
  let other = initial
  const keeper: Keeper = createKeeper(await store.load(source.settings), {
    settings: source.settings,
    clock,
    random,
    saveState: (state) => store.save(state),
  })

  return {
    keeper,
    assertionWatch: createAssertionWatch({ config: () => source.config, keeper }),
    /** One token for all hosts of the account. */
    sharing: {
      async run(signal: AbortSignal): Promise<void> {
        if (source.account !== null) void loadFleet()
        await Promise.race([shares.promise, untilAborted(signal)])
        await (await loading)?.run(signal)
      },
      /** Null: this host does not share, or has not begun to. */
      status: () => fleet?.status() ?? null,
      sample: () => fleet?.sample() ?? null,
    },
    /** The token and every secret that was or may be sent: no log shows one. */
    secrets,
    /** Prepares another configuration and returns the function that starts to use it. Throws UserError. */
    prepare(next: Config): () => void {
      const prepared = sourceOf(next)
      return () => {
        use(prepared)
        keeper.reload(prepared.settings)
      }
    },
    /** Tries these credentials until there is a token or a refusal, and uses them if they give a token. */
    async tryCredentials(next: Config, trial: TrialOptions): Promise<FetchOutcome | undefined> {
      other = next
      const tried = sourceOf(next)
      const outcome = await keeper.tryCredentials(tried.settings, trial)
      if (outcome?.kind === 'ok') use(tried)
      else if (tried.account !== null) fleet?.drop(tried.account)
      return outcome
    },
  }
}
