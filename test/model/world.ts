// The world of the model: hosts with the program's own keeper, trials, saved state and sharing, on one clock,
// with disks, service and store in memory. An act is a word: what happens next. `broken` are the rules of the
// contract that were broken so far.
import type { Config } from '../../src/config/config.ts'
import type { OnDisk } from '../../src/config/on-disk.ts'
import { standardService } from '../../src/config/service.ts'
import { createRunning, type Running } from '../../src/running/running.ts'
import { sha256 } from '../../src/lib/crypto.ts'
import { Secret } from '../../src/lib/secret.ts'
import { formatSaved, parseSavedState, parseSavedToken, savedStateOf } from '../../src/storage/saved-state.ts'
import { restoredState } from '../../src/storage/restored-state.ts'
import type { StateStore } from '../../src/storage/state-store.ts'
import type { Cause, FetchToken, ServiceOutcome } from '../../src/token/outcome.ts'
import { currentAlert } from '../../src/token/current-alert.ts'
import {
  dueAtMs,
  phaseOf,
  refusalOf,
  usableToken,
  usableUntilMs,
  type ServiceSettings,
  type TokenState,
} from '../../src/token/state.ts'
import { StoreError, type Store } from '../../src/share/store.ts'
import { createRequests, type Requests } from '../rules/requests.ts'
import { checkWith, sentenceOf, type Broke } from '../rules/rules.ts'
import { checkAlert, createHanded, createTokenless } from '../rules/tokens.ts'
import { jwtOf } from '../support/jwt.ts'
import { createMemoryServer, type MemoryServer } from '../support/memory-store.ts'
import { createModelClock, deliver, settle, type HostClock, type Process } from './clock.ts'

await import('p-retry')
await import('../../src/share/fleet.ts')

const LIFE_MS = 240_000
const MAX_AGE_MS = 120_000
const RETRY_AFTER_MS = 180_000
const REQUEST_TIMEOUT_MS = 15_000
const LEASE_MS = REQUEST_TIMEOUT_MS + 2_000
/** No start and no plan replaces a token that is younger. */
const FRESH_MS = 30_000
const MAX_REQUESTS = 3_000
const URL = 'https://service.example'
const THERE = 'https://there.example'
const MAX_DELAY_MS = { usual: 60_000, quick: 10_000 }
/** An act of an operator is followed by a request at once, but for the files that settle. */
const OPERATOR_MS = 2_500
/** A written file is found at the next tick, once it has settled. */
const WRITTEN_MS = 32_500
/** A disk that hangs holds up a request for 2 s. */
const HANG_MS = 4_000
const NO_TOKEN_AFTER_MS = 600_000
const CERTIFICATE = 'request.clientCertificate.certFile'
const INACTIVE = 'Your account is not active'
const STORE = { servers: [], prefix: 'kyc-tokend', host: null, key: null, timeoutMs: 1_000 }

const failures: Record<string, ServiceOutcome> = {
  outage: { kind: 'transient', reason: 'server-error', detail: 'Down', status: 503 },
  reset: { kind: 'transient', reason: 'network', detail: 'Reset' },
  malformed: { kind: 'transient', reason: 'malformed-answer', detail: 'No token', status: 200 },
  timeout: { kind: 'transient', reason: 'timeout', detail: 'Too slow' },
  busy: { kind: 'transient', reason: 'rate-limited', detail: 'Busy', retryAfterMs: RETRY_AFTER_MS },
  rejected: { kind: 'transient', reason: 'rejected', detail: 'No', status: 401 },
  refused: { kind: 'permanent', reason: 'account-inactive', detail: INACTIVE, status: 500 },
}
/** What a kill leaves of an answer that was not saved yet. */
const UNSAVED = { isRefused: false, notBeforeMs: -Infinity, rejectedUntilMs: -Infinity }
/** Neither older nor newer than anything. */
const NO_ORDER = { asked: -Infinity, answered: Infinity }
/** Acts of one host; all others are of the world. */
const OF_HOST = new Set(
  'answer operator reject need crash restart reboot arm stop go reload rotate cut move leave hangs wall policy'.split(
    ' ',
  ),
)
export const ANSWERS = 'token opaque same expired malformed outage reset busy rejected refused'.split(' ')

interface Life extends Process {
  readonly host: Host
  readonly clock: ReturnType<ReturnType<typeof createModelClock>['of']>
  readonly stop: AbortController
  readonly parts: Running
  readonly store: StateStore
  readonly config: Config
}
interface Issued {
  readonly number: number
  readonly account: string
  readonly askedMs: number
  readonly issuedMs: number
  endsMs: number
}
/** What a fleet that nothing has disturbed knows of an account. */
interface OfFleet {
  notBeforeMs: number
  /** The fleet has a token that no start and no plan replaces before. */
  freshUntilMs: number
}
type Policy = 'usual' | 'quick'
interface Host extends HostClock {
  readonly index: number
  disk: { token: string | null; state: string | null }
  boots: number
  /** Its next save takes so long. */
  hangsMs: number
  /** A save is held up: what came since is not on disk. */
  isHung: boolean
  /** The prefix of the shared store that it uses; null: it does not share. */
  prefix: string | null
  /** The maxDelay of its configuration. */
  policy: Policy
  /** The operators who wait for an answer. */
  operators: AbortController[]
  /** By what act a request is owed, until when, and for which account; null: for any. */
  owed: { readonly act: string; byMs: number; readonly account: string | null }[]
  isWallSet: boolean
  isReplanned: boolean
  /** The pair in the secret files, and how often they were written. */
  files: string
  written: number
  life: Life
  /** It crashes, stops or has this act done at so many effects (saves, requests, commands to the store) from now. */
  armed: { readonly what: string; effects: number } | null
  /** It was stopped since the last calm: what it does now may be too late. */
  isLate: boolean
  /** By account, what it has handed out. */
  handed: Record<string, ReturnType<typeof createHanded>>
  /** By account, how many tokens there were when it was refused last. */
  readonly refusedAt: Map<string, number>
  readonly rules: Requests
  tokenless: ReturnType<typeof createTokenless>
}
interface Request {
  readonly life: Life
  readonly account: string
  /** The store was disturbed since: its lease may be lost. */
  isDisturbed: boolean
  readonly answer: (kind: string) => void
}
export type World = Awaited<ReturnType<typeof createWorld>>

/** `auto`: the answer to each request, at once; null: it waits for an act. */
export async function createWorld({
  hosts: count = 1,
  random = (): number => 0.5,
  auto = null as string | null,
  /** The unit hides the id of the boot: a mark in its runtime directory has to do. */
  hasBootId = true,
  /** These hosts do not ask, and wait for the store. */
  waits = [] as readonly number[],
  /** The store takes so long for a command. */
  storeMs = 0,
} = {}) {
  const clock = createModelClock()
  const broken = new Set<string>()
  const isShared = count > 1
  const servers = new Map<string, MemoryServer>()
  /** What a writer of the store has copied. */
  const copies = new Map<MemoryServer, { record: string | null; lease: string | null }>()
  let redis: 'well' | 'lost' | 'hung' = 'well'
  /** The hosts that do not reach it. */
  const cutOff = new Set<number>()
  let isPushing = true
  let storeAheadMs = 0
  let timedOutMs = 0
  let disturbances = 0
  /** By account, what the fleet knows as one client, while nothing has disturbed the store since. */
  const fleet = new Map<string, OfFleet>()
  const tokens = new Map<string, Issued>()
  const requests: Request[] = []
  let asked = 0
  const nowMs = (): number => clock.now().bootMs
  const never = (): Promise<never> => new Promise(() => undefined)

  function check(isHeld: boolean, rule: string): void {
    if (!isHeld) broken.add(rule)
  }
  const broke: Broke = (rule, detail) => broken.add(sentenceOf(rule, detail))
  const checkRule = checkWith(broke)

  // ---- effects: the moments at which a process can be killed or stopped

  /** `isMoment`: too short a moment for a process to be stopped in. */
  async function effect(life: Life, { isMoment = false } = {}): Promise<void> {
    const { host } = life
    const isMeant = host.armed !== null && !(isMoment && host.armed.what === 'stop')
    if (host.armed !== null && isMeant && host.life === life && !life.isDead) {
      host.armed.effects -= 1
      if (host.armed.effects <= 0) {
        const { what } = host.armed
        host.armed = null
        if (what === 'stop') life.inbox = []
        else if (what === 'crash') kill(host)
        else {
          const [name = '', how = ''] = what.split('.')
          void acts[name]!(host, how, '')
        }
      }
    }
    if (life.inbox !== null) await new Promise<void>((resolve) => deliver(life, resolve))
    if (life.isDead) await never()
  }

  function kill(host: Host): void {
    const { life } = host
    life.isDead = true
    host.rules.forgetToken()
    host.tokenless.unsure()
    if (host.isHung) host.rules.forgetAll()
    host.isHung = false
    ;[host.armed, host.owed, host.operators] = [null, [], []]
    life.stop.abort()
    for (const one of requests.filter((request) => request.life === life))
      requests.splice(requests.indexOf(one), 1)
  }

  // ---- the service

  function fetchTokenOf(life: () => Life, account: string): FetchToken {
    return async (signal, { cause, beforeRequest }) => {
      const givenUp: ServiceOutcome = { kind: 'transient', reason: 'network', detail: 'Given up' }
      await beforeRequest()
      await effect(life())
      if (signal.aborted) return givenUp
      asked += 1
      if (asked > MAX_REQUESTS) throw new Error('The service is asked without end')
      checkRequest(life(), account, cause)
      const askedMs = nowMs()
      const before = disturbances
      const kind = await answerTo(life(), account, signal)
      if (kind === null) return givenUp
      const outcome = outcomeOf(kind, account, askedMs)
      const counted = kind === 'expired' ? failures['malformed']! : outcome
      learn(life(), {
        account,
        cause,
        kind,
        askedMs,
        outcome: counted,
        isDisturbed: before !== disturbances,
      })
      await effect(life(), { isMoment: true })
      return outcome
    }
  }

  async function answerTo(life: Life, account: string, signal: AbortSignal): Promise<string | null> {
    if (auto !== null) return auto
    return new Promise((resolve) => {
      const end = (kind: string | null): void => {
        cancel()
        if (requests.includes(request)) requests.splice(requests.indexOf(request), 1)
        deliver(life, () => resolve(kind))
      }
      const cancel = clock.schedule(life, REQUEST_TIMEOUT_MS, () => {
        timedOutMs = nowMs()
        end('timeout')
      })
      const request: Request = { life, account, isDisturbed: false, answer: end }
      requests.push(request)
      signal.addEventListener('abort', () => end(null))
    })
  }

  function outcomeOf(kind: string, account: string, askedMs: number): ServiceOutcome {
    const given = failures[kind]
    if (given !== undefined) return given
    const serverDateMs = clock.now().wallMs
    const [former, of] = [...tokens].findLast(([, token]) => token.account === account) ?? []
    if (kind === 'same' && former !== undefined && of !== undefined) {
      // An opaque token that is given again may be good for its whole life again.
      if (former.startsWith('opaque')) of.endsMs = nowMs() + 2 * MAX_AGE_MS
      return { kind: 'ok', accessToken: former, serverDateMs }
    }
    if (kind === 'expired') {
      const iat = Math.floor(serverDateMs / 1_000) - 60
      return { kind: 'ok', accessToken: jwtOf({ iat, exp: iat + 30 }), serverDateMs }
    }
    const number = tokens.size + 1
    const iat = Math.floor(serverDateMs / 1_000)
    const isOpaque = kind === 'opaque'
    const accessToken = isOpaque ? `opaque-${number}` : jwtOf({ iat, exp: iat + LIFE_MS / 1_000 }, number)
    const endsMs = nowMs() + (isOpaque ? 2 * MAX_AGE_MS : LIFE_MS)
    tokens.set(accessToken, { number, account, askedMs, issuedMs: nowMs(), endsMs })
    return { kind: 'ok', accessToken, serverDateMs }
  }

  // ---- the store

  function openStore(life: () => Life, name: string): Store {
    const server = servers.get(name) ?? createMemoryServer(() => clock.now().wallMs + storeAheadMs)
    servers.set(name, server)
    const inner = server.connect(`host-${life().host.index}`, life().stop.signal)
    const through =
      <A, R>(command: (request: A) => Promise<R>) =>
      async (request: A): Promise<R> => {
        const process = life()
        await effect(process)
        if (redis === 'lost' || cutOff.has(process.host.index)) throw new StoreError('lost', 'Lost')
        if (redis === 'hung') {
          await process.clock.sleep(1_000, new AbortController().signal)
          throw new StoreError('lost', 'Too slow')
        }
        if (storeMs > 0) await process.clock.sleep(storeMs, new AbortController().signal)
        const result = await command(request)
        const { record, lease } = copies.get(server) ?? { record: null, lease: null }
        copies.set(server, { record: record ?? server.text('record'), lease: lease ?? keptLease(server) })
        await effect(process)
        return result
      }
    return {
      ...inner,
      poll: through(inner.poll.bind(inner)),
      acquire: through(inner.acquire.bind(inner)),
      write: through(inner.write.bind(inner)),
      listen: (call) =>
        inner.listen((what) => {
          if (isPushing && redis === 'well' && !cutOff.has(life().host.index))
            deliver(life(), () => call(what))
        }),
    }
  }
  const keptLease = (server: MemoryServer): string | null => {
    const text = server.text('lease')
    return text !== null && text.includes(' ') ? text : null
  }

  function disturb(): void {
    fleet.clear()
    disturbances += 1
    for (const request of requests) request.isDisturbed = true
  }

  /** A process that can write to the store and knows no secret. */
  function evil(what: string): void {
    disturb()
    for (const server of servers.values()) {
      const copy = copies.get(server)
      const hour = { keepMs: 3_600_000 }
      if (what === 'replay' && copy?.record) server.plant('record', { text: copy.record, ...hour })
      if (what === 'kept' && copy?.lease) server.plant('lease', { text: copy.lease, ...hour })
      if (what === 'lease') server.plant('lease', { text: 'e'.repeat(16), ...hour })
      if (what === 'garbage')
        server.plant('record', { text: `9007199254740000 ${'f'.repeat(16)} AAAA`, ...hour })
      server.message()
    }
  }

  // ---- the rules about requests

  const ofFleet = (account: string): OfFleet => {
    const known = fleet.get(account) ?? { freshUntilMs: 0, notBeforeMs: 0 }
    fleet.set(account, known)
    return known
  }
  /**
   * What was answered counts once the process has lived on to the end of the step: until then it may not be
   * saved.
   */
  const unsettled: (() => void)[] = []
  const settleKnown = (): void => unsettled.splice(0).forEach((call) => call())

  function checkRequest(life: Life, account: string, cause: Cause): void {
    settleKnown()
    const { host } = life
    checkRule(!requests.some((one) => one.life === life), 'one-at-a-time', cause)
    host.isReplanned = false
    const isPaid = (owner: Host, owed: string | null): boolean =>
      owed === account || (owed === null && (owner === host || isShared))
    for (const one of hosts) one.owed = one.owed.filter((debt) => !isPaid(one, debt.account))
    checkFleet(life, account, cause)
    host.rules.asked(account, { cause, atMs: nowMs(), isTrial: account !== nameOf(life.config) })
  }

  /** While the store is well and every host runs, the fleet is one client. */
  function checkFleet(life: Life, account: string, cause: Cause): void {
    if (!isShared || redis !== 'well' || cutOff.size > 0) return
    if (hosts.some(({ prefix }) => prefix !== STORE.prefix)) return
    // The first host asks before the last one has been started.
    if (hosts.some(({ isLate, life: other }) => isLate || (other as Life | undefined)?.inbox)) return
    const token = usableToken(life.parts.keeper.state(), life.clock.now())
    // A host whose token ends soon waits for another host only for half of that time.
    const isPressed = token !== null && leftMs(life, nowMs()) < 2 * LEASE_MS
    const isAlone = !requests.some((one) => one.account === account && !one.isDisturbed)
    // After two leases of hosts that get no answer a host asks by itself.
    const isHanging = nowMs() - timedOutMs < 3 * LEASE_MS
    checkRule(isAlone || isPressed || isHanging, 'fleet-at-once', cause)
    const known = ofFleet(account)
    if (cause === 'operator' || cause === 'reload') return
    checkRule(nowMs() >= known.notBeforeMs, 'asked-for-wait', `of the fleet, ${cause}`)
    const isPlanned = cause !== 'client' && cause !== 'retry'
    checkRule(nowMs() >= known.freshUntilMs || !isPlanned, 'fleet-again', cause)
  }

  function learn(
    life: Life,
    {
      account,
      cause,
      kind,
      askedMs,
      outcome,
      isDisturbed,
    }: {
      account: string
      cause: Cause
      kind: string
      askedMs: number
      outcome: ServiceOutcome
      isDisturbed: boolean
    },
  ): void {
    const atMs = nowMs()
    const isTrial = account !== nameOf(life.config)
    const { host } = life
    if (outcome.kind === 'permanent') host.refusedAt.set(account, tokens.size)
    // It was saved as failed before it went out.
    const failed = outcome.kind === 'ok' ? 0 : host.rules.of(account).failures + 1
    const lifeMs = isShared || kind === 'same' ? 0 : kind === 'opaque' ? MAX_AGE_MS : LIFE_MS
    const answer = { atMs, isTrial, cause, lifeMs }
    unsettled.push(() => {
      // Killed or stopped in the moment of the answer: it may have been saved, or not.
      const isSaved = !life.isDead && life.inbox === null
      host.rules.answered(account, outcome, { ...answer, leftMs: leftMs(life, atMs) })
      const { token } = life.parts.keeper.state()
      // Another configuration may have come between.
      const isDropped = outcome.kind === 'ok' && token?.accessToken !== outcome.accessToken
      if (isDropped) host.rules.forgetToken()
      if (!isSaved) {
        // What was saved is that it failed when it went out.
        Object.assign(host.rules.of(account), { ...UNSAVED, failures: failed, answeredMs: askedMs })
        host.rules.forgetToken()
      }
      if (isSaved && isShared && redis === 'well' && cutOff.size === 0 && !isDisturbed) {
        const shared = ofFleet(account)
        const freshUntilMs = outcome.kind === 'ok' ? atMs + FRESH_MS : 0
        const bound = outcome.kind === 'transient' ? atMs + (outcome.retryAfterMs ?? 0) : 0
        const former = outcome.kind === 'transient' ? shared.notBeforeMs : 0
        Object.assign(shared, { freshUntilMs, notBeforeMs: Math.max(former, bound) })
      } else fleet.delete(account)
    })
  }
  /** Until the token that is held goes stale or out of use; Infinity: there is none. */
  function leftMs({ parts, host }: Life, atMs: number): number {
    const { token } = parts.keeper.state()
    if (token === null) return Infinity
    const ends = [token.expiresAtMs, usableUntilMs(token)].map((endMs) => endMs + host.bootedAtMs - atMs)
    return Math.min(...ends.filter((left) => left > 0))
  }

  // ---- hosts

  /** The pair, after a `+` the client certificate, and after an `@` the service, if that is another. */
  const nameOf = ({ credentials, baseUrl }: Pick<Config, 'credentials' | 'baseUrl'>): string => {
    const { apiKey, further = {} } = credentials
    const pair = [apiKey!, ...Object.values(further)].map((secret) => secret.reveal()).join('+')
    return baseUrl === URL ? pair : `${pair}@there`
  }
  const configs = new Map<string, Config>()
  function configOf({ files: name, policy, prefix, index }: Host): Config {
    const [credentials = '', place] = name.split('@')
    const [pair = '', certificate] = credentials.split('+')
    const baseUrl = place === undefined ? URL : THERE
    const isWaiting = waits.includes(index)
    const key = [name, policy, prefix, isWaiting].join()
    const secret = new Secret(pair)
    const further = certificate !== undefined && { [CERTIFICATE]: new Secret(certificate) }
    const config =
      configs.get(key) ??
      ({
        file: 'config',
        baseUrl,
        service: standardService(baseUrl),
        credentials: { apiKey: secret, apiSecret: secret, ...(further && { further }) },
        request: { timeoutMs: REQUEST_TIMEOUT_MS },
        retry: { initialDelayMs: 1_000, maxDelayMs: MAX_DELAY_MS[policy] },
        refresh: { maxAgeMs: MAX_AGE_MS },
        ipc: { path: 'ipc.sock' },
        http: null,
        secretFiles: {
          'credentials.apiKey': 'key-file',
          'credentials.apiSecret': 'secret-file',
          [CERTIFICATE]: 'certificate-file',
        },
        endsAtMs: { pair: null },
        share:
          prefix === null
            ? null
            : { ...STORE, asks: !isWaiting, whenAlone: isWaiting ? 'wait' : 'fetch', prefix },
      } as unknown as Config)
    configs.set(key, config)
    return config
  }

  /**
   * The state store with its pure half; each file is one effect, and a kill comes before, between or after
   * them.
   */
  function stateStoreOf(life: () => Life): StateStore {
    const { host } = life()
    let saving = Promise.resolve()
    /** The two files, as texts. */
    function written(state: TokenState, isOrderly: boolean): Record<'token' | 'state', string | null> {
      const boot = String(host.boots)
      const marks = hasBootId ? { bootId: boot, bootMark: null } : { bootId: null, bootMark: boot }
      const at = { at: life().clock.now(), ...marks }
      const { token } = state
      return {
        token: token && formatSaved(token, at),
        state: formatSaved(savedStateOf(state, { isOrderly }), at),
      }
    }
    async function save(state: TokenState, isOrderly: boolean): Promise<void> {
      const files = written(state, isOrderly)
      const writeFiles = async (): Promise<void> => {
        const { hangsMs } = host
        host.hangsMs = 0
        if (hangsMs > 0) {
          host.isHung = true
          await life().clock.sleep(hangsMs, new AbortController().signal)
          host.isHung = false
        }
        await effect(life())
        host.disk = { ...host.disk, token: files.token }
        await effect(life())
        host.disk = { ...host.disk, state: files.state }
        await effect(life())
      }
      saving = saving.then(writeFiles)
      await saving
    }
    return {
      hostId: `${host.index}`.padStart(16, '0'),
      credentialsIdOf: (baseUrl: string, credentials: Config['credentials']) =>
        sha256(nameOf({ credentials, baseUrl })),
      load(settings: ServiceSettings) {
        const state = restored(host, settings, life().clock.now())
        host.disk = written(state, false)
        return Promise.resolve(state)
      },
      save: (state: TokenState) => save(state, false),
      close: (state: TokenState) => save(state, true),
    } as unknown as StateStore
  }

  function restored(
    host: Host,
    settings: ServiceSettings,
    now: { bootMs: number; wallMs: number },
  ): TokenState {
    const { token, state } = host.disk
    const kept = token === null ? undefined : parseSavedToken(token)
    const remembered = state === null ? undefined : parseSavedState(state)
    check((token === null) === (kept === undefined), 'a saved token that cannot be read')
    check((state === null) === (remembered === undefined), 'a saved state that cannot be read')
    const isThisBoot = ({ bootId, bootMark }: { bootId: string | null; bootMark?: string | null }): boolean =>
      (hasBootId ? bootId : bootMark) === String(host.boots)
    return restoredState(settings, {
      now,
      awakeMs: now.bootMs - host.sleptMs,
      kept: kept && isThisBoot(kept.written) ? kept.facts : null,
      saved: remembered ? { ...remembered, isThisBoot: isThisBoot(remembered.written) } : null,
    })
  }

  async function start(host: Host): Promise<void> {
    const life = {
      host,
      isDead: false,
      inbox: null,
      stop: new AbortController(),
      get config() {
        return (this as unknown as Life).parts?.config() ?? configOf(host)
      },
    } as unknown as Life
    host.life = life
    host.rules.wish('start', nowMs())
    const own = clock.of(life, host)
    Object.assign(life, { clock: own })
    const files = stateStoreOf(() => life)
    const log = (): void => undefined
    let found: { written: number; onDisk: OnDisk } | null = null
    const readDisk = (): Promise<OnDisk> => {
      const { written } = host
      if (found?.written !== written) found = { written, onDisk: { kind: 'loaded', config: configOf(host) } }
      return Promise.resolve(found.onDisk)
    }
    const { signal } = life.stop
    const parts = await createRunning(configOf(host), {
      env: {},
      clock: own,
      random,
      log,
      store: files,
      stop: signal,
      hasOwnSockets: false,
      load: () => Promise.resolve(configOf(host)),
      readDisk,
      openStore: ({ prefix }, { accountKey }) =>
        Promise.resolve(openStore(() => life, `${prefix}:${accountKey}`)),
      createFetchToken: ({ credentials, service }) => {
        const baseUrl = service.tokenUrl.startsWith(URL) ? URL : THERE
        return fetchTokenOf(() => life, nameOf({ credentials, baseUrl }))
      },
    })
    Object.assign(life, { parts, store: files })
    const running = Promise.all([parts.keeper.run(signal), parts.sharing.run(signal), parts.run(signal)])
    running.catch((error: Error) => check(life.isDead, `the daemon ends: ${error.message}`))
    await settle(2)
  }

  // ---- the rules about what is known and handed out

  function look(host: Host): void {
    const { parts, clock: own, config } = host.life
    const state = parts.keeper.state()
    const now = own.now()
    const token = usableToken(state, now)
    const known = token && tokens.get(token.accessToken)
    if (token && known) {
      const { number, account, askedMs, issuedMs, endsMs } = known
      host.handed[account] ??= createHanded(broke, { grainMs: 1_000 })
      // Requests of a fleet that overlap have no order, and a clock of the store that was set back has none
      // either.
      const overlapping = storeAheadMs >= 0 ? { asked: askedMs, answered: issuedMs } : NO_ORDER
      const order = isShared ? overlapping : { asked: number, answered: number }
      const { accessToken: text, generation } = token
      host.handed[account].hand({ text, generation, order, endsMs }, nowMs())
      const isNewer = number > (host.refusedAt.get(nameOf(config)) ?? 0)
      check(
        isShared || refusalOf(state) === null || !isNewer,
        'refused beside a token that is newer than the refusal',
      )
    }
    checkRule(token === null || known !== undefined, 'expired', 'it had ended when it came')
    lookForAlert(host, token !== null)
    const phase = phaseOf(state, now)
    if (phase !== 'refused') check(dueAtMs(state) - now.bootMs < 86_400_000, 'nothing is planned: a trap')
    const facts = host.rules.of(nameOf(config))
    // Another host may have lifted it.
    if (isShared && state.objection === null) facts.isRefused = false
    if (isShared && state.failure === null)
      Object.assign(facts, { notBeforeMs: -Infinity, rejectedUntilMs: -Infinity, failures: 0 })
    const isRefused = facts.isRefused && state.inFlight === null
    check(!isRefused || state.objection !== null, 'a refusal is forgotten')
  }

  function lookForAlert(host: Host, hasToken: boolean): void {
    const { parts, clock: own } = host.life
    const state = parts.keeper.state()
    // When a token ended since the last look is not known.
    const none = host.tokenless.seen(hasToken, { awakeMs: own.awakeMs(), endedAgoMs: 0 })
    const alert = currentAlert(state, own.now(), NO_TOKEN_AFTER_MS)?.reason ?? null
    const isAwaited = state.inFlight !== null || state.next !== null
    const shown = {
      hasToken,
      hasFailed: state.failure !== null && !isAwaited && dueAtMs(state) > own.now().bootMs,
      isRefused: refusalOf(state) !== null,
      isRejected: state.objection?.reason === 'rejected',
      alert,
    }
    checkAlert(shown, { ...none, noTokenAfterMs: NO_TOKEN_AFTER_MS }, broke)
  }

  /** What a process that is killed now would know after its start, against what it knows now. */
  function checkSaved(host: Host): void {
    const { parts, clock: own, inbox } = host.life
    const state = parts.keeper.state()
    const now = own.now()
    // An attempt of a fleet that was put off is not saved: it asks the store again.
    if (inbox !== null || host.isHung || state.inFlight !== null || (isShared && state.next !== null)) return
    const meaning = (one: TokenState): Record<string, unknown> => ({
      token: usableToken(one, now) && [usableToken(one, now)?.accessToken, one.token?.refreshAtMs],
      objection: one.objection?.reason ?? null,
      failure: one.failure &&
        !host.isReplanned && [one.failure.reason, one.failure.attempts, one.failure.retryAtMs],
      notBefore: Object.entries(one.notBefore).filter(([, untilMs]) => untilMs > now.bootMs),
      generation: one.generation,
      pace: one.pace.requestedMs,
    })
    const before = meaning(state)
    const after = meaning(restored(host, state, now))
    for (const [name, fact] of Object.entries(before))
      check(JSON.stringify(fact) === JSON.stringify(after[name]), `a crash changes ${name}`)
    const { candidate } = state
    if (candidate === null || candidate.failure === null || candidate.next !== null) return
    // The files still hold it: its start knows what it was answered.
    const { failure, objection } = restored(host, { ...state, credentialsId: candidate.credentialsId }, now)
    const known = failure?.reason ?? objection?.reason
    check(known === candidate.failure.reason, 'a crash changes what the candidate was answered')
  }

  // ---- acts

  async function restart(host: Host): Promise<void> {
    const { stop, store, parts } = host.life
    stop.abort()
    await settle()
    // It may be killed or stopped meanwhile.
    await Promise.race([store.close(parts.keeper.state()), settle()])
    kill(host)
    host.rules.acted(nowMs())
    await start(host)
  }

  function refresh(host: Host): void {
    const { parts, stop } = host.life
    const operator = new AbortController()
    host.operators.push(operator)
    owe(host, { act: 'operator', ms: OPERATOR_MS })
    void parts.refresh(AbortSignal.any([stop.signal, operator.signal]))
  }

  const isAskingNow = (host: Host): boolean =>
    host.life.parts.keeper.state().inFlight !== null ||
    requests.some(({ life }) => life === host.life || (isShared && life.host.prefix === host.prefix))

  /** A request that is under way answers an act. */
  function owe(host: Host, debt: { act: string; ms: number; account?: string }): void {
    if (isShared || isAskingNow(host)) return
    const { act: name, ms, account = null } = debt
    host.owed = [...host.owed.filter((one) => one.act !== name), { act: name, byMs: nowMs() + ms, account }]
  }

  /** An act is followed by a request, unless something else came between. */
  function checkOwed(host: Host): void {
    if (host.life.inbox !== null || (isShared && !isStoreWell())) host.owed = []
    for (const debt of host.owed) {
      const isHeld = debt.account !== null && host.rules.of(debt.account).notBeforeMs > nowMs()
      if (isHeld || isAskingNow(host)) debt.byMs = Math.max(debt.byMs, nowMs() + WRITTEN_MS)
      checkRule(nowMs() <= debt.byMs, 'act', debt.act)
    }
    host.owed = host.owed.filter(({ byMs }) => byMs >= nowMs())
  }
  const isStoreWell = (): boolean =>
    redis === 'well' && cutOff.size === 0 && hosts.every(({ prefix }) => prefix === STORE.prefix)

  /** Files that are written are an act: the pair in them may be asked with once. */
  function write(host: Host, name: string): void {
    host.rules.acted(nowMs(), [name])
    host.rules.wish('reload', nowMs())
    host.files = name
    host.written += 1
    host.owed = host.owed.filter((debt) => debt.act !== 'files')
    const isOther = !isShared && name !== nameOf(host.life.config)
    if (isOther) owe(host, { act: 'files', ms: WRITTEN_MS, account: name })
  }

  /** A reload with what the host's configuration is now. */
  function reload(host: Host): void {
    host.written += 1
    host.rules.acted(nowMs(), [host.files])
    host.rules.wish('reload', nowMs())
    host.rules.setMaxDelay(MAX_DELAY_MS[host.policy])
    host.owed = []
    // As createReload, which reads the disk before.
    if (!host.life.stop.signal.aborted) host.life.parts.use(configOf(host))
  }

  const acts: Record<string, (host: Host, how: string, effects: string) => unknown> = {
    auto(_host, kind) {
      auto = kind === '' ? null : kind
      for (const one of Array.from(requests)) if (auto !== null) one.answer(auto)
    },
    wait: (_host, seconds) => clock.advance(Number(seconds) * 1_000),
    answer: (host, kind) => requests.find((one) => one.life === host.life)?.answer(kind),
    operator(host) {
      host.rules.wish('operator', nowMs())
      refresh(host)
    },
    /** The operators who wait go away: what they asked for goes on. */
    leave: ({ operators }) => operators.splice(0).forEach((operator) => operator.abort()),
    hangs: (host) => (host.hangsMs = HANG_MS),
    /** Somebody sets the wall clock. */
    wall: (host, seconds) => ((host.wallAheadMs += Number(seconds) * 1_000), (host.isWallSet = true)),
    sleep(_host, seconds) {
      clock.suspend(Number(seconds) * 1_000)
      for (const one of hosts) one.sleptMs += Number(seconds) * 1_000
      disturb()
      for (const one of hosts) one.owed = []
    },
    policy(host, policy) {
      host.policy = policy as Policy
      // A wait that was drawn again is saved with the next answer; a start draws it again, too.
      host.isReplanned = true
      reload(host)
    },
    reject({ rules, life: { parts, clock: own } }) {
      rules.wish('client', nowMs())
      rules.reported(nowMs())
      parts.keeper.reject(usableToken(parts.keeper.state(), own.now())?.fingerprint ?? 'none')
    },
    need({ life, rules }) {
      rules.wish('client', nowMs())
      life.parts.keeper.need(200_000)
    },
    crash: kill,
    restart,
    reboot(host) {
      kill(host)
      const disk = { ...host.disk, token: null }
      // What was to be waited for follows the wall clock.
      if (host.isWallSet) host.rules.forgetAll()
      Object.assign(host, { sleptMs: 0, isWallSet: false })
      Object.assign(host, { disk, boots: host.boots + 1, bootedAtMs: nowMs() - 1_000, handed: {} })
      host.tokenless.reboot(1_000)
    },
    arm: (host, what, effects) => (host.armed = { what, effects: Number(effects) }),
    stop: ({ life }) => (life.inbox = []),
    go(host) {
      const { life } = host
      host.isLate = true
      disturb()
      const waiting = life.inbox ?? []
      life.inbox = null
      for (const call of waiting) deliver(life, call)
    },
    reload(host, name) {
      write(host, name)
      reload(host)
      if (!isShared && name !== nameOf(host.life.config))
        owe(host, { act: 'reload', ms: OPERATOR_MS, account: name })
    },
    rotate: (host, name) => write(host, host.files.endsWith('@there') ? `${name}@there` : name),
    /** A reload that changes the shared store: to that of this prefix, or to none. */
    move(host, prefix) {
      disturb()
      host.prefix = prefix === 'none' ? null : prefix
      reload(host)
    },
    lose: () => ((redis = 'lost'), disturb()),
    cut: ({ index }) => (cutOff.add(index), disturb()),
    hang: () => ((redis = 'hung'), disturb()),
    find() {
      redis = 'well'
      cutOff.clear()
      isPushing = true
      disturb()
      for (const server of servers.values()) server.message()
    },
    flush() {
      disturb()
      for (const server of servers.values()) server.flush()
    },
    deaf: () => (isPushing = false),
    clock(_host, seconds) {
      disturb()
      storeAheadMs += Number(seconds) * 1_000
    },
    evil: (_host, what) => evil(what),
  }

  /** An act: a word, and what it needs, with colons between; for a host its index comes first. */
  async function act(step: string): Promise<void> {
    const [name = '', ...more] = step.split(':')
    const ofAll = !OF_HOST.has(name)
    const [how = '', effects = ''] = ofAll ? more : more.slice(1)
    await acts[name]!(hosts[ofAll ? 0 : Number(more[0])]!, how, effects)
    await settle()
    for (const host of hosts) if (host.life.isDead) await start(host)
    settleKnown()
    for (const host of hosts) {
      checkOwed(host)
      if (host.life.inbox === null) look(host)
    }
  }

  /** The service is well from now on: a token in bounded time, no alert, and few requests. */
  async function calm(): Promise<void> {
    const stateOf = ({ life }: Host): TokenState => life.parts.keeper.state()
    // One that does not ask has what others of its account ask for.
    const hasAsker = ({ index, life, prefix }: Host): boolean =>
      !waits.includes(index) ||
      hosts.some(
        (one) =>
          !waits.includes(one.index) &&
          one.prefix === prefix &&
          nameOf(one.life.config) === nameOf(life.config),
      )
    // A token that is good now may end before the wait of the fleet does.
    const isReady = (host: Host): boolean =>
      !hasAsker(host) ||
      (phaseOf(stateOf(host), host.life.clock.now()) === 'ready' && stateOf(host).postponement === null)
    const isSettled = (host: Host): boolean => host.files === nameOf(host.life.config)
    /** A wait of a fleet stands, which a host may meet only later. */
    const isWaiting = (): boolean => [...servers.values()].some((server) => keptLease(server) !== null)
    for (const host of hosts) {
      host.armed = null
      if (host.life.inbox !== null) await act(`go:${host.index}`)
      if (isShared && host.prefix !== STORE.prefix) await act(`move:${host.index}:${STORE.prefix}`)
    }
    if (isShared) await act('find')
    await act('auto:token')
    // The pace of `rejected` is 10 min at most.
    let rounds = 0
    do await act('wait:70')
    while ((rounds += 1) < 10 && (isWaiting() || !hosts.every((host) => isReady(host) && isSettled(host))))
    for (const host of hosts) {
      const isRefused = phaseOf(stateOf(host), host.life.clock.now()) === 'refused'
      check(isReady(host) || isRefused, 'the service is well for ten minutes, and there is no token')
      if (isRefused || !isSettled(host)) await act(`operator:${host.index}`)
    }
    // A host whose refresh falls due now may have to wait with the fleet, for 5 min at most.
    rounds = 0
    do await act('wait:40')
    while ((rounds += 1) < 10 && hosts.some((host) => stateOf(host).postponement !== null))
    const before = asked
    for (const host of hosts.filter(hasAsker)) {
      check(
        isReady(host) && stateOf(host).objection === null,
        'an operator asks, the service is well, and there is no token',
      )
      const isAsker = !waits.includes(host.index)
      check(isSettled(host) || !isAsker, 'the pair in the files is never taken over')
    }
    for (const account of isShared ? new Set(hosts.map((host) => nameOf(host.life.config))) : []) {
      const held = hosts
        .filter((host) => nameOf(host.life.config) === account)
        .map((host) => stateOf(host).token?.accessToken)
      checkRule(new Set(held).size === 1 || storeAheadMs < 0, 'fleet-apart')
    }
    await act('wait:200')
    const accounts = new Set(hosts.map((host) => nameOf(host.life.config))).size
    check(asked - before <= 2 * accounts, 'more than two requests in 200 quiet seconds')
  }

  const hosts = Array.from({ length: count }, (_, index) => ({
    index,
    disk: { token: null, state: null },
    boots: 0,
    bootedAtMs: 0,
    sleptMs: 0,
    wallAheadMs: 0,
    hangsMs: 0,
    isHung: false,
    prefix: isShared ? STORE.prefix : null,
    policy: 'usual',
    operators: [],
    owed: [],
    isWallSet: false,
    isReplanned: false,
    files: 'a',
    written: 0,
    armed: null,
    isLate: false,
    handed: {},
    refusedAt: new Map<string, number>(),
    rules: createRequests(broke, { grainMs: 1 }),
    tokenless: createTokenless(nowMs()),
  })) as unknown as Host[]
  for (const host of hosts) await start(host)

  return {
    act,
    broken,
    hosts,
    tokens,
    calm,
    checkSaved: () => hosts.forEach(checkSaved),
    servers,
    store: () => ({
      isWell: redis === 'well' && cutOff.size === 0 && isPushing,
      facts: [redis, isPushing, storeAheadMs, ...cutOff],
      hasRecord: [...copies.values()].some(({ record }) => record !== null),
      hasLease: [...copies.values()].some(({ lease }) => lease !== null),
    }),
    asked: () => asked,
    /** The tokens that the hosts hand out. */
    served: () =>
      hosts.map(({ life }) => usableToken(life.parts.keeper.state(), life.clock.now())?.accessToken),
    nowMs,
    isAsking: (host: Host) => requests.some((one) => one.life === host.life),
    nameOf: (host: Host) => nameOf(host.life.config),
    end: () => hosts.forEach(kill),
  }
}
