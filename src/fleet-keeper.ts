// The keeper, and the fleet for which it asks: out of a configuration and the saved state.
import type { Config } from './config/config.ts'
import type { Clock } from './lib/clock.ts'
import type { Log } from './lib/log.ts'
import { createFleet, type Fleet, type FleetOptions } from './share/fleet.ts'
import { createFetchToken } from './source/fetch-token.ts'
import type { StateStore } from './storage/state-store.ts'
import { createKeeper, type Keeper, type RefreshSettings } from './token/keeper.ts'
import { assumedLifeMs } from './token/rejections.ts'
import { usableToken, usableUntilMs } from './token/state.ts'

export interface FleetKeeper {
  readonly keeper: Keeper
  readonly fleet: Fleet
  /** The keeper's settings out of another configuration. `fleet.use` goes on with it. */
  readonly settingsOf: (config: Config) => RefreshSettings
}

export async function createFleetKeeper(
  initial: Config,
  {
    env,
    clock,
    log,
    store,
    secrets,
    running,
  }: {
    env: NodeJS.ProcessEnv
    clock: Clock
    log: Log
    store: StateStore
    secrets: () => string[]
    running: () => Config
  },
): Promise<FleetKeeper> {
  const view: FleetOptions['keeper'] = {
    offer: (outcome) => keeper.offer(outcome),
    usableUntilMs() {
      const token = usableToken(keeper.state(), clock.now())
      return token && usableUntilMs(token)
    },
    assumedLifeMs: () => assumedLifeMs(keeper.state(), policyOf(running()), clock.now()),
    rejectedAgeMs: () => keeper.state().rejection?.ageMs ?? null,
    holdsRecord: () => keeper.state().token !== null || keeper.state().refusal !== null,
  }
  const fleet = createFleet({ clock, random: Math.random, log, saved: () => store.fleet(), keeper: view })

  function settingsOf(config: Config): RefreshSettings {
    const { baseUrl } = config
    const credentialsId = store.credentialsIdOf(baseUrl, config.credentials)
    const fetchToken = createFetchToken({ ...config, env, clock, secrets })
    const shared = fleet.sharing(config, credentialsId, fetchToken)
    return { fetchToken: shared, policy: policyOf(config), baseUrl, credentialsId }
  }

  const settings = settingsOf(initial)
  fleet.use(initial)
  const state = await store.load(settings)
  const keeper: Keeper = createKeeper(state, {
    settings,
    clock,
    random: Math.random,
    async saveState(next) {
      store.setFleet(fleet.saved() ?? store.fleet())
      await store.save(next)
    },
  })
  return { keeper, fleet, settingsOf }
}

function policyOf({ retry, refresh }: Config): RefreshSettings['policy'] {
  return { ...retry, ...refresh }
}
