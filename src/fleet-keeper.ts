// The keeper with its source, the service or the fleet: built from a configuration and the saved state, and moved to other
// configurations and credentials.
import { revealAll, type Config } from './config/config.ts'
import type { Clock } from './lib/clock.ts'
import type { Log } from './lib/log.ts'
import { createFleet, type FleetOptions, type Sharing } from './share/fleet.ts'
import { isNamedRefusal, type FetchTokenOptions } from './source/fetch-token.ts'
import type { StateStore } from './storage/state-store.ts'
import { createKeeper, type Keeper, type RefreshSettings } from './token/keeper.ts'
import type { FetchOutcome, FetchToken, TrialOptions } from './token/outcome.ts'
import { knownOf } from './token/state.ts'

export interface FleetKeeperOptions {
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
  readonly sharing: Sharing
  readonly settings: RefreshSettings
}

export async function createFleetKeeper(initial: Config, options: FleetKeeperOptions) {
  const { env, clock, random, log, store, createFetchToken } = options
  const fleet = createFleet({
    clock,
    random,
    log,
    openStore: options.openStore,
    saved: () => ({ fence: Number(knownOf(keeper.state()) ?? 0), hosts: 0 }),
    keeper: {
      offer: (outcome) => keeper.offer(outcome),
      state: () => keeper.state(),
      policy: () => source.settings.policy,
    },
  })

  function sourceOf(config: Config): Source {
    const { baseUrl, service, retry, refresh } = config
    const credentialsId = store.credentialsIdOf(baseUrl, config.credentials, service.description)
    const fromService = createFetchToken({ ...config, env, clock, secrets })
    const sharing = fleet.sharing(config, credentialsId, fromService)
    const settings: RefreshSettings = {
      fetchToken: sharing.fetchToken,
      policy: { ...retry, ...refresh },
      baseUrl,
      credentialsId,
      refusedBy: service.refusedBy,
      use: service.use,
      refuses: (refusal) => isNamedRefusal(service, refusal),
    }
    return { config, sharing, settings }
  }

  function secrets(): string[] {
    return [...revealAll(source.config), ...revealAll(other), keeper.state().token?.accessToken ?? '']
  }

  function use(next: Source): void {
    other = source.config
    source = next
    source.sharing.use()
  }

  let source = sourceOf(initial)
  /** The configuration that was in use before, or that was tried last. */
  let other = initial
  source.sharing.use()
  const keeper: Keeper = createKeeper(await store.load(source.settings), {
    settings: source.settings,
    clock,
    random,
    saveState: (next) => store.save(next),
  })

  return {
    keeper,
    fleet,
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
    /** Tries the credentials of this configuration until there is a token or a refusal, and uses them if they give a token. */
    async tryCredentials(next: Config, trial: TrialOptions): Promise<FetchOutcome | undefined> {
      other = next
      const tried = sourceOf(next)
      const outcome = await keeper.tryCredentials(tried.settings, trial)
      if (outcome?.kind === 'ok') use(tried)
      else tried.sharing.drop()
      return outcome
    },
  }
}
