// A fleet that shares one token, on one fake clock: the real schedule and the real sharing code, many times, against a store that goes away.
import type { Clock, Instant } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import { createSeal, type Opened, type Seal } from '../../src/share/seal.ts'
import { createSession, type Session } from '../../src/share/session.ts'
import { StoreError } from '../../src/share/store.ts'
import type { FetchOutcome, FetchToken } from '../../src/token/outcome.ts'
import {
  dueAtMs,
  initialState,
  nextMomentMs,
  plannedAttempt,
  usableUntilMs,
  type Policy,
  type TokenState,
} from '../../src/token/state.ts'
import {
  afterAttemptBegan,
  afterAttemptEnded,
  afterRequest,
  afterTick,
  nextState,
} from '../../src/token/transitions.ts'
import { jwtOf } from '../support/jwt.ts'
import { createMemoryServer } from '../support/memory-store.ts'
import { createRandom } from '../support/random.ts'
import { createHeap } from './heap.ts'
import { peakOf } from './report.ts'

export interface ShareFleetOptions {
  readonly daemons: number
  readonly tokenLifeMs: number
  /** Duration of the store's absence, which begins when the first host could be due. */
  readonly outageMs: number
  readonly seed: number
}
export interface ShareFleetNumbers {
  /** Requests to the service for each token, while the store is there. */
  readonly requestsPerRotation: number
  /** Requests in the fullest second while the store is gone. */
  readonly storeOutagePeakPerSecond: number
  /** Of all hosts together, from the first token on. */
  readonly withoutTokenSeconds: number
}
export interface ShareFleetRun {
  readonly numbers: ShareFleetNumbers
  /** When the service was asked while the store was gone, in ms from then on. */
  readonly outageRequestsMs: readonly number[]
}

interface Host {
  state: TokenState
  share: Session
  /** Never aborted. Its own, as in a daemon: a signal looks through all of its listeners for each new one. */
  readonly life: AbortSignal
  /** Until when its last token could be used. */
  servedUntilMs: number
  /** Its next moment; other entries of the queue are obsolete. */
  nextMs: number
}

const BASE_URL = 'https://service'
const POLICY: Policy = { initialDelayMs: 1_000, maxDelayMs: 300_000, maxAgeMs: 900_000 }
const START_WALL_MS = 1_800_000_000_000
const ROTATIONS = 5
/** Hosts are due between 17/30 and 2/3 of a life. */
const NOBODY_DUE_SHARE = 0.56
/** Hosts that find the store again do so within one look. */
const LOOK_MS = 15_000

export async function runShareFleet(options: ShareFleetOptions): Promise<ShareFleetRun> {
  const { daemons, tokenLifeMs, outageMs } = options
  const random = createRandom(options.seed)
  const queue = createHeap()
  let nowMs = 0
  const now = (): Instant => ({ bootMs: nowMs, wallMs: START_WALL_MS + nowMs })
  const server = createMemoryServer(() => now().wallMs)
  const seal = openingOnce(
    createSeal({
      baseUrl: BASE_URL,
      description: null,
      credentials: { apiKey: new Secret('key'), apiSecret: new Secret('secret') },
      key: null,
    }),
  )
  /** Looks that find nothing new are left out: the loops sleep until the store is back. */
  const looks = new Set<() => void>()
  const clock: Clock = {
    now,
    schedule: () => () => undefined,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        // A pause after a look.
        if (ms < 1_000) return resolve()
        const end = (): void => {
          looks.delete(end)
          resolve()
        }
        looks.add(end)
        signal.addEventListener('abort', end, { once: true })
      }),
  }
  const requestsMs: number[] = []
  const tokens = new Set<string>()
  let withoutTokenMs = 0
  const step = () => ({ now: now(), policy: POLICY, drawn: random() })

  const fetchToken: FetchToken = async (_signal, { beforeRequest }) => {
    await beforeRequest()
    requestsMs.push(nowMs)
    const iat = now().wallMs / 1000
    const accessToken = jwtOf({ iat, exp: iat + tokenLifeMs / 1000 }, requestsMs.length)
    return { kind: 'ok', accessToken }
  }

  function become(host: Host, outcome: FetchOutcome): void {
    host.state = nextState(host.state, outcome, step()).state
    const { token } = host.state
    if (token === null) return
    tokens.add(token.accessToken)
    withoutTokenMs += Math.max(0, nowMs - host.servedUntilMs)
    host.servedUntilMs = usableUntilMs(token)
  }

  function createHost(index: number): Host {
    const host = {
      state: initialState({ baseUrl: BASE_URL, credentialsId: 'one' }, now()),
      life: new AbortController().signal,
      servedUntilMs: Infinity,
      nextMs: 0,
    } as Host
    host.share = createSession({
      store: server.connect(String(index)),
      seal,
      clock,
      random,
      log: () => undefined,
      host: String(index),
      credentialsId: 'one',
      share: {
        timeoutMs: 1_000,
        asks: true,
        whenAlone: 'fetch',
        user: null,
        prefix: '',
        database: 0,
        cluster: false,
      },
      service: () => ({ fetchToken, requestTimeoutMs: 15_000, retry: POLICY }),
      keeper: {
        offer(outcome) {
          if (host.state.inFlight !== null) return false
          become(host, outcome)
          schedule(host, index)
          return true
        },
        state: () => host.state,
        policy: () => POLICY,
        isUsing: () => true,
      },
    })
    return host
  }

  function schedule(host: Host, index: number): void {
    const atMs = nextMomentMs(host.state, now())
    host.nextMs = Math.max(nowMs, atMs)
    if (Number.isFinite(atMs) || atMs === -Infinity) queue.push(host.nextMs, index)
  }

  async function live(host: Host, index: number): Promise<void> {
    host.state = afterTick(host.state, step())
    if (dueAtMs(host.state) <= nowMs) {
      const { cause } = plannedAttempt(host.state)
      host.state = afterAttemptBegan(host.state, cause, now())
      const beforeRequest = (): Promise<void> => {
        host.state = afterRequest(host.state, cause, now())
        return Promise.resolve()
      }
      const outcome = await host.share.fetchToken(host.life, { cause, beforeRequest })
      host.state = afterAttemptEnded(host.state)
      become(host, outcome)
    }
    schedule(host, index)
  }

  const hosts = Array.from({ length: daemons }, (_, index) => createHost(index))
  for (const [index, host] of hosts.entries()) {
    void host.share.run(host.life)
    queue.push(0, index)
  }
  await turn()

  async function runUntil(isOver: () => boolean, untilMs: number): Promise<void> {
    for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
      if (next.atMs > untilMs || isOver()) {
        queue.push(next.atMs, next.index)
        break
      }
      nowMs = Math.max(nowMs, next.atMs)
      const host = hosts[next.index] as Host
      if (next.atMs === host.nextMs) await live(host, next.index)
    }
    nowMs = Math.max(nowMs, Number.isFinite(untilMs) ? untilMs : nowMs)
  }

  await runUntil(() => requestsMs.length > ROTATIONS, Infinity)
  const requestsPerRotation = requestsMs.length / tokens.size
  await runUntil(() => false, (requestsMs.at(-1) ?? 0) + NOBODY_DUE_SHARE * tokenLifeMs)

  const goneFromMs = nowMs
  const before = requestsMs.length
  server.fail(new StoreError('lost', 'The store is gone'))
  await runUntil(() => false, goneFromMs + outageMs)
  const outageRequestsMs = requestsMs.slice(before).map((atMs) => atMs - goneFromMs)
  server.fail(null)
  for (const [index, wake] of [...looks].entries()) {
    // One look after the other, over the time in which all of them look.
    if (index % Math.ceil(daemons / LOOK_MS) === 0) await runUntil(() => false, nowMs + 1)
    wake()
  }
  await turn()
  await runUntil(() => false, nowMs + tokenLifeMs)
  for (const { servedUntilMs } of hosts) withoutTokenMs += Math.max(0, nowMs - servedUntilMs)
  return {
    numbers: {
      requestsPerRotation,
      storeOutagePeakPerSecond: peakOf(outageRequestsMs),
      withoutTokenSeconds: Math.round(withoutTokenMs) / 1000,
    },
    outageRequestsMs,
  }
}

/** All hosts have the same secret: a record that one of them has opened is the same to the others. */
function openingOnce(seal: Seal): Seal {
  const last = { text: '', record: null as Opened<'record'> | null }
  const open = (text: string): Opened<'record'> | null => {
    if (text !== last.text) Object.assign(last, { text, record: seal.open('record', text) })
    return last.record
  }
  return { ...seal, open: (key, text) => (key === 'record' ? open(text) : seal.open(key, text)) }
}

/** Lets promises settle. */
function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
