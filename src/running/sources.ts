// The source of tokens that a configuration makes: the service, with `share` by the fleet.
import { accountText, pairText, type Config, type PairConfig } from '../config/config.ts'
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { SharedPair } from '../share/fleet.ts'
import { createShare, type ShareOptions } from '../share/share.ts'
import { assertionReader, type FetchTokenOptions } from '../source/fetch-token.ts'
import type { StateStore } from '../storage/state-store.ts'
import type { Keeper, Source as PairSource } from '../token/keeper.ts'
import type { FetchToken } from '../token/outcome.ts'
import { usableToken } from '../token/selectors.ts'
import type { Files } from '../token/state.ts'
import type { Token } from '../token/token.ts'

/** The environment of the room, which exists before it. */
export interface FollowerOptions {
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  readonly store: Pick<StateStore, 'fingerprintOf' | 'load' | 'save'>
  readonly createFetchToken: (options: FetchTokenOptions) => FetchToken
  /** The shared store; Redis, unless it is given. */
  readonly open?: ShareOptions['open']
  /** Reads the configuration, as a daemon has it until a restart where this one is in force. Throws only UserError. */
  readonly load: (inForce: Config) => Promise<Config>
  /** That of the daemon: nothing is used any more. */
  readonly stop: AbortSignal
}

/** A pair, and how it is asked. */
export interface Source extends PairSource {
  readonly pair: PairConfig
  /** Its configuration tells the keeper this. */
  readonly files: Files
  /** Null: this host does not share. */
  readonly shared: SharedPair | null
}

/** `keeper`: the one that uses the sources. `secrets`: what no detail of an answer may hold. */
export function createSources(
  options: FollowerOptions & { readonly keeper: () => Keeper; readonly secrets: () => string[] },
) {
  const { keeper, clock, store, createFetchToken } = options
  const held = (): Token | null => usableToken(keeper().state(), clock.now())
  const share = createShare({ ...options, keeper: { held, offer: (outcome) => keeper().offer(outcome) } })
  const idOf = ({ pair }: Config): string => store.fingerprintOf(pairText(pair))

  return {
    /** One token for all hosts of the account. */
    share,
    /** The keyed fingerprint of the pair of this configuration. */
    idOf,
    /** The source of this configuration. */
    of(config: Config): Source {
      const { service, pair, share: sharing, request, policy } = config
      const { baseUrl, tokenUrl, use, refusedBy } = service
      const id = idOf(config)
      const serviceId = store.fingerprintOf(JSON.stringify([baseUrl, tokenUrl]))
      const files = { service: { id: serviceId, baseUrl, use, refusedBy }, policy, pair: id }
      const fetchToken = createFetchToken({ ...options, ...config })
      const readAssertion = assertionReader(pair, clock)
      const alone = { id, pair, files, shared: null, fetchToken, ...(readAssertion && { readAssertion }) }
      if (sharing === null) return alone
      const shared: SharedPair = {
        share: sharing,
        pairId: id,
        text: JSON.stringify([baseUrl, tokenUrl, accountText(pair)]),
        hasOwnProof: pair.clientCertificate !== null || pair.assertion?.kind === 'ready',
        fetchToken,
        requestTimeoutMs: request.timeoutMs,
        maxAgeMs: policy.maxAgeMs,
      }
      return { ...alone, shared, fetchToken: async (...attempt) => share.attempt(shared, ...attempt) }
    },
  }
}
