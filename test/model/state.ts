// What the world of the model has: its hosts, the requests that are under way, the tokens that were given, the
// shared store, and the rules of the contract that were broken so far.
import type { Config } from '../../src/config/config.ts'
import type { Running } from '../../src/running/running.ts'
import type { MemoryServer } from '../support/memory-store.ts'
import type { StateStore } from '../../src/storage/state-store.ts'
import type { FetchToken } from '../../src/token/outcome.ts'
import { usableUntilMs } from '../../src/token/state.ts'
import { createOwnAnswers } from '../rules/fleet.ts'
import type { Requests } from '../rules/requests.ts'
import { checkWith, sentenceOf, type Broke } from '../rules/rules.ts'
import type { createHanded, createTokenless } from '../rules/tokens.ts'
import { createModelClock, type HostClock, type ModelClock, type Process } from './clock.ts'

export const LIFE_MS = 240_000
export const MAX_AGE_MS = 120_000
export const REQUEST_TIMEOUT_MS = 15_000
export const MAX_DELAY_MS = { usual: 60_000, quick: 10_000 }
/** The prefix of the shared store that all hosts use, unless they are moved. */
export const PREFIX = 'kyc-tokend'

/** One process of the daemon, from its start to its end. */
export interface Life extends Process {
  readonly host: Host
  readonly clock: ReturnType<ModelClock['of']>
  readonly stop: AbortController
  readonly parts: Running
  readonly store: StateStore
  readonly config: Config
}
export interface Host extends HostClock {
  readonly index: number
  disk: { token: string | null; state: string | null }
  boots: number
  /** Its next save takes so long. */
  hangsMs: number
  /** Since when a save is held up: what came since is not on disk; null: none is. */
  hungSinceMs: number | null
  /** The prefix of the shared store that it uses; null: it does not share. */
  prefix: string | null
  /** The maxDelay of its configuration. */
  policy: keyof typeof MAX_DELAY_MS
  /** The operators who wait for an answer. */
  operators: AbortController[]
  /** By what act a request is owed, until when, and for which account; null: for any. */
  owed: { readonly act: string; byMs: number; readonly account: string | null }[]
  isWallSet: boolean
  isReplanned: boolean
  /** How the service answers this host where another gets a token; null: like any other. */
  barred: 'refused' | 'rejected' | null
  /** The pair in the secret files, and how often they were written. */
  files: string
  written: number
  life: Life
  /** It crashes, stops or has this act done at so many effects (saves, requests, commands to the store) from now. */
  armed: { readonly what: string; effects: number } | null
  /** It was stopped since the last calm: what it does now may be too late. */
  isLate: boolean
  /** The store failed it since it last asked or got a token: it may have drawn a time to ask by itself. */
  mayAskAlone: boolean
  /** By account, what it has handed out. */
  handed: Record<string, ReturnType<typeof createHanded>>
  /** By account, how many tokens there were when it was refused last. */
  readonly refusedAt: Map<string, number>
  readonly rules: Requests
  /** What it has logged. */
  readonly events: { readonly event: string; readonly [field: string]: unknown }[]
  tokenless: ReturnType<typeof createTokenless>
}
/** A token that the service gave. */
interface Issued {
  readonly number: number
  readonly account: string
  /** The request that brought it last. */
  askedMs: number
  issuedMs: number
  endsMs: number
}
/** A request that is under way. */
interface Request {
  readonly life: Life
  readonly account: string
  readonly askedMs: number
  /** The store was disturbed since: its lease may be lost. */
  isDisturbed: boolean
  readonly answer: (kind: string) => void
}
/** What a fleet that nothing has disturbed knows of an account. */
interface OfFleet {
  notBeforeMs: number
  /** The fleet has a token that no start and no plan replaces before. */
  freshUntilMs: number
}

export interface WorldOptions {
  readonly hosts?: number
  readonly random?: () => number
  /** The answer to each request, at once; null: it waits for an act. */
  readonly auto?: string | null
  /** False: the unit hides the id of the boot, and a mark in its runtime directory has to do. */
  readonly hasBootId?: boolean
  /** These hosts do not ask, and wait for the store. */
  readonly waits?: readonly number[]
  /** Each host proves itself with a client certificate. */
  readonly hasOwnProof?: boolean
  /** By host, how long the way to the store and the way back take, each. */
  readonly storeMs?: readonly number[]
  /** Each host has a name of its own. */
  readonly hasNames?: boolean
  /** Other settings of `share` than usual. */
  readonly share?: object
  /** Why a host cannot ask, as of its source. */
  readonly notReady?: NonNullable<FetchToken['notReady']>
}
export type State = ReturnType<typeof createState>

export function createState(options: WorldOptions) {
  const {
    hosts: count = 1,
    random = () => 0.5,
    auto = null,
    hasBootId = true,
    waits = [],
    storeMs = [],
    hasOwnProof = false,
    hasNames = false,
    share = {},
    notReady,
  } = options
  const clock = createModelClock()
  const broken = new Set<string>()
  const broke: Broke = (rule, detail) => broken.add(sentenceOf(rule, detail))
  const state = {
    count,
    hasOwnProof,
    hasNames,
    share,
    notReady,
    isShared: count > 1,
    random,
    hasBootId,
    waits,
    clock,
    nowMs: (): number => clock.now().bootMs,
    broken,
    broke,
    checkRule: checkWith(broke),
    check: (isHeld: boolean, rule: string): void => {
      if (!isHeld) broken.add(rule)
    },
    hosts: [] as Host[],
    /** As in the options. */
    auto,
    requests: [] as Request[],
    /** The requests that went out. */
    asked: [] as { readonly host: number; readonly atMs: number }[],
    askedAtMs: -Infinity,
    /** When the service last gave no answer in time. */
    timedOutMs: 0,
    tokens: new Map<string, Issued>(),
    store: {
      takesMs: storeMs,
      state: 'well' as 'well' | 'lost' | 'hung',
      /** The hosts that do not reach it. */
      cutOff: new Set<number>(),
      isPushing: true,
      aheadMs: 0,
      /** By prefix and account. */
      servers: new Map<string, MemoryServer>(),
      /** What a writer of the store has copied. */
      copies: new Map<MemoryServer, { record: string | null; lease: string | null }>(),
    },
    ownAnswers: createOwnAnswers(broke),
    disturbances: 0,
    /** By account, what the fleet knows as one client, while nothing has disturbed the store since. */
    fleet: new Map<string, OfFleet>(),
    /**
     * What was answered counts once the process has lived on to the end of the step: until then it may not be
     * saved.
     */
    unsettled: [] as (() => void)[],
    /** Does this act, such as `reload.b`, in the middle of a step. */
    perform: (_host: Host, _what: string): void => undefined,
  }
  return state
}

/** What was known to hold between the hosts and the store holds no more. */
export function disturb(state: State): void {
  state.fleet.clear()
  state.disturbances += 1
  for (const request of state.requests) request.isDisturbed = true
}

/** Until the token that is held goes stale or out of use; Infinity: there is none. */
export function leftMs({ parts, host }: Life, atMs: number): number {
  const { token } = parts.keeper.state()
  if (token === null) return Infinity
  const ends = [token.expiresAtMs, usableUntilMs(token)].map((endMs) => endMs + host.bootedAtMs - atMs)
  return Math.min(...ends.filter((left) => left > 0))
}
