// The world of a random story: the real keeper and the real store in processes that end at any moment, and a model that says what they must not do.
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { Secret } from '../../src/lib/secret.ts'
import { createStateStore, type StateStore } from '../../src/storage/state-store.ts'
import { createKeeper, type Keeper, type RefreshSettings } from '../../src/token/keeper.ts'
import type { Attempt, Cause, FetchToken, ServiceOutcome } from '../../src/token/outcome.ts'
import { nextExpiryMs, usableToken } from '../../src/token/state.ts'
import { createFakeClock } from './fake-clock.ts'
import { jwtOf } from './jwt.ts'
import { createRandom } from './random.ts'
import { BUSY_MS, checkPlan, failures, takeStep, type HostStep } from './story-host.ts'

await import('p-retry')

export type Answer =
  | 'long'
  | 'short'
  | 'eternal'
  | 'opaque'
  | 'same'
  | 'expired'
  | 'outage'
  | 'reset'
  | 'busy'
  | 'rejected'
  | 'refused'
export type Step =
  | { readonly do: 'answer'; readonly answer: Answer; readonly afterMs: number }
  | HostStep
  | { readonly do: 'suspend' | 'jump'; readonly ms: number }
  | { readonly do: 'reboot' | 'restart' }
  | {
      readonly do: 'reload'
      readonly credentials: string
      readonly service: string
      readonly maxAgeMs: number
    }
  /** The secret files were replaced: the new credentials are tried, and are those of the next start. */
  | { readonly do: 'try'; readonly credentials: string }
  /** A kill -9 after so many further effects (a save or a request that begins or ends) and turns of promises. */
  | { readonly do: 'crash'; readonly effects: number; readonly turns: number }

export interface StoryWorld {
  play(step: Step): Promise<void>
  /** The rules that were broken, in sentences. */
  broken(): readonly string[]
  end(): Promise<void>
}

const INITIAL_DELAY_MS = 1_000
const MAX_DELAY_MS = 300_000
const CAP_WITHOUT_TOKEN_MS = 60_000
const CLIENT_PACE_MS = 30_000
const REJECTED_PACE_MS = 300_000
const START_WALL_MS = 1_800_000_000_000
/** More than any story causes: a loop that asks without end ends here instead of never. */
const MAX_REQUESTS = 20_000

/** The knowledge of the service about one pair of credentials at one service. All times are the model's own. */
interface Account {
  /** Not to be asked before, by its own words. */
  notBeforeMs: number
  isRefused: boolean
  failures: number
  lastRequestMs: number
  /** Left of the token's life when the last attempt failed; no wait is longer. */
  leftMs: number
  /** Until when the token that it last gave is good, and may not be asked for by a mere start. */
  goodUntilMs: number
}

interface Process {
  readonly keeper: Keeper
  readonly store: StateStore
  readonly life: AbortController
  readonly running: Promise<void>
  isDead: boolean
}

export async function createStoryWorld(seed: number): Promise<StoryWorld> {
  const root = mkdtempSync(join('/dev/shm', 'kyc-tokend-story-'))
  const random = createRandom(seed)
  const broken: string[] = []
  let copies = 0
  let directory = newDirectory()
  let busy = 0
  const isBusy = (): boolean => busy > 0
  let clock = createFakeClock({ bootMs: 1_000_000, wallMs: START_WALL_MS, isBusy })
  /** The model's own time, which never jumps: boot clock and what earlier boots took. */
  let earlierMs = 0
  let wallJumpMs = 0
  let isWallTrusted = true
  const nowMs = (): number => earlierMs + clock.now().bootMs
  const serviceWallMs = (): number => clock.now().wallMs - wallJumpMs

  let settings = { credentials: 'one', service: 'here', maxAgeMs: 900_000 }
  let answer: { answer: Answer; afterMs: number } = { answer: 'long', afterMs: 0 }
  const accounts = new Map<string, Account>()
  /** True end of each JWT that was given, on the model's time. */
  const ends = new Map<string, number>()
  let last: { accessToken: string; endsMs: number } | null = null
  let clientRequestMs = -Infinity
  let underWay = 0
  let requests = 0
  let issued = 0
  let isStarting = false
  let crash: { effects: number; turns: number } | null = null
  let current: Process | null = null

  function newDirectory(): string {
    copies += 1
    const path = join(root, String(copies))
    mkdirSync(join(path, 'run'), { recursive: true })
    mkdirSync(join(path, 'state'))
    return path
  }

  function check(claim: boolean, sentence: string): void {
    if (!claim) broken.push(sentence)
  }

  function accountOf(name: string): Account {
    const known = accounts.get(name)
    if (known !== undefined) return known
    const fresh = {
      notBeforeMs: -Infinity,
      isRefused: false,
      failures: 0,
      lastRequestMs: -Infinity,
      leftMs: Infinity,
      goodUntilMs: -Infinity,
    }
    accounts.set(name, fresh)
    return fresh
  }

  // ---- crashes --------------------------------------------------------------------------------------------------------

  /** Something that outlives the process begins or ends: a moment at which to kill it. */
  async function effect(): Promise<void> {
    if (crash === null) return
    crash.effects -= 1
    if (crash.effects > 0) return
    const { turns } = crash
    crash = null
    void kill(turns)
    await Promise.resolve()
  }

  async function kill(turns: number): Promise<void> {
    const victim = current
    for (let turn = 0; turn < turns; turn += 1) await Promise.resolve()
    if (victim === null || victim.isDead) return
    victim.isDead = true
    const next = newDirectory()
    cpSync(directory, next, { recursive: true })
    directory = next
    victim.life.abort()
    underWay = 0
  }

  // ---- the service ----------------------------------------------------------------------------------------------------

  function fetchWith(name: string, isAlive: () => boolean): FetchToken {
    return async (signal: AbortSignal, { cause, beforeRequest }: Attempt) => {
      const isNeedless = isStarting && nowMs() < accountOf(name).goodUntilMs
      accountOf(name).goodUntilMs = -Infinity
      await beforeRequest()
      if (!isAlive()) return new Promise<never>(() => undefined)
      if (signal.aborted) return { kind: 'transient', reason: 'network', detail: 'Given up' }
      requests += 1
      if (requests > MAX_REQUESTS) throw new Error('The service is asked without end')
      check(
        !isNeedless || cause === 'operator',
        `a request at a start with a good token, because of ${cause}`,
      )
      checkRequest(name, cause)
      underWay += 1
      await effect()
      const { answer: kind, afterMs } = answer
      if (afterMs > 0) await clock.sleep(afterMs, signal)
      if (!isAlive()) return new Promise<never>(() => undefined)
      underWay -= 1
      if (signal.aborted) return { kind: 'transient', reason: 'network', detail: 'Given up' }
      const outcome = outcomeOf(kind)
      await effect()
      if (isAlive()) note(name, outcome)
      return outcome
    }
  }

  function checkRequest(name: string, cause: Cause): void {
    const account = accountOf(name)
    const at = nowMs()
    check(underWay === 0, 'two requests at once')
    if (cause === 'operator') {
      account.isRefused = false
    } else {
      const because = `because of ${cause}`
      check(!account.isRefused, `a request while the account is refused, ${because}`)
      check(at >= account.notBeforeMs, `a request before the time that the service asked for, ${because}`)
      const capMs = Math.min(CAP_WITHOUT_TOKEN_MS, account.leftMs)
      const delayMs = Math.min(capMs, INITIAL_DELAY_MS * 2 ** (account.failures - 1)) / 2
      check(
        account.failures === 0 || at - account.lastRequestMs >= delayMs,
        `a request ${at - account.lastRequestMs} ms after the failure number ${account.failures}, ${because}`,
      )
    }
    if (cause === 'client') {
      check(at - clientRequestMs >= CLIENT_PACE_MS, 'two requests caused by clients within 30 s')
      clientRequestMs = at
    }
    account.lastRequestMs = at
  }

  function outcomeOf(kind: Answer): ServiceOutcome {
    const iat = serviceWallMs() / 1000
    const jwt = (lifeMs: number): ServiceOutcome => {
      issued += 1
      return grant(jwtOf({ iat, exp: iat + lifeMs / 1000 }, issued), nowMs() + lifeMs)
    }
    const grant = (accessToken: string, endsMs: number): ServiceOutcome => {
      last = { accessToken, endsMs }
      ends.set(accessToken, endsMs)
      return { kind: 'ok', accessToken, serverDateMs: serviceWallMs() }
    }
    switch (kind) {
      case 'long':
        return jwt(3_600_000)
      case 'short':
        return jwt(20_000)
      case 'eternal':
        return jwt(9e13)
      case 'expired':
        return { ...jwt(-1_000), serverDateMs: serviceWallMs() } as ServiceOutcome
      case 'opaque':
        issued += 1
        return grant(`opaque-${issued}`, Infinity)
      case 'same':
        // As a service that keeps its tokens: without a Date, so that only what was known of it before says its end.
        if (last === null) return jwt(3_600_000)
        return last.accessToken === current?.keeper.state().token?.accessToken
          ? { kind: 'ok', accessToken: last.accessToken }
          : { kind: 'ok', accessToken: last.accessToken, serverDateMs: serviceWallMs() }
      case 'outage':
      case 'reset':
      case 'rejected':
      case 'busy':
      case 'refused':
    }
    return failures[kind]
  }

  /** The model's view of an answer, once it was saved: a crash before that makes it unknown to everybody. */
  function note(name: string, outcome: ServiceOutcome): void {
    pending = { name, outcome, atMs: nowMs(), isTrial: name !== runningName }
  }
  let pending: { name: string; outcome: ServiceOutcome; atMs: number; isTrial: boolean } | null = null

  function learn(): void {
    if (pending === null) return
    const { name, outcome, atMs, isTrial } = pending
    pending = null
    const account = accountOf(name)
    const endsMs = outcome.kind === 'ok' ? (ends.get(outcome.accessToken) ?? -Infinity) : -Infinity
    account.goodUntilMs = -Infinity
    if (outcome.kind === 'permanent') {
      account.isRefused = !isTrial
      account.failures = 0
    } else if (outcome.kind === 'ok' && endsMs > atMs) {
      account.failures = 0
      account.notBeforeMs = -Infinity
      // A start that comes before a quarter of its life is over has no reason to ask.
      account.goodUntilMs = atMs + Math.min(endsMs - atMs, settings.maxAgeMs) / 4
    } else {
      // Of a trial that failed only the wait that the service asked for is kept.
      if (!isTrial) account.failures += 1
      account.leftMs = leftMs()
      const bounds: Partial<Record<string, number>> = { 'rate-limited': BUSY_MS, rejected: REJECTED_PACE_MS }
      const boundMs = outcome.kind === 'ok' ? undefined : bounds[outcome.reason]
      account.notBeforeMs = Math.max(account.notBeforeMs, boundMs === undefined ? -Infinity : atMs + boundMs)
    }
  }

  /** The rest of the token's life, or of its assumed age; Infinity: there is none. */
  function leftMs(): number {
    const state = current?.keeper.state()
    const leftOf = state && nextExpiryMs(state, clock.now()) - clock.now().bootMs
    return Math.max(INITIAL_DELAY_MS, leftOf ?? Infinity)
  }

  // ---- processes ------------------------------------------------------------------------------------------------------

  /** The account of the configuration on disk. */
  const accountName = (): string => `${settings.credentials}@${settings.service}`
  /** The account that the running daemon asks with. */
  let runningName = accountName()

  function settingsFor(store: StateStore, isAlive: () => boolean): RefreshSettings {
    const baseUrl = `https://${settings.service}.example`
    const secret = new Secret(settings.credentials)
    return {
      fetchToken: fetchWith(accountName(), isAlive),
      policy: { maxAgeMs: settings.maxAgeMs, initialDelayMs: INITIAL_DELAY_MS, maxDelayMs: MAX_DELAY_MS },
      baseUrl,
      credentialsId: store.credentialsIdOf(baseUrl, { apiKey: secret, apiSecret: secret }),
    }
  }

  async function start(): Promise<void> {
    const directories = { runtimeDirectory: join(directory, 'run'), stateDirectory: join(directory, 'state') }
    const store = await createStateStore({ ...directories, clock, log: () => undefined })
    let self: Process | null = null
    const isAlive = (): boolean => self === null || !self.isDead
    const asked = settingsFor(store, isAlive)
    const initial = await store.load(asked)
    const keeper = createKeeper(initial, {
      settings: asked,
      clock,
      random,
      saveState: async (state) => {
        if (!isAlive()) return
        await effect()
        busy += 1
        try {
          await store.save(state)
        } finally {
          busy -= 1
        }
        if (!isAlive()) return
        // The save before a request says nothing of an answer yet.
        learn()
        await effect()
      },
    })
    const life = new AbortController()
    isStarting = true
    runningName = accountName()
    self = { keeper, store, life, isDead: false, running: Promise.resolve() }
    current = self
    const running = keeper.run(life.signal)
    Object.assign(self, { running })
    await clock.settle()
    isStarting = false
  }

  /** systemd starts what was killed. */
  async function revive(): Promise<void> {
    if (current?.isDead !== true) return
    pending = null
    await start()
  }

  async function stopInOrder(): Promise<void> {
    crash = null
    const { keeper, store, life, running } = current!
    life.abort()
    await running
    await store.close(keeper.state())
    current!.isDead = true
    underWay = 0
    for (const account of accounts.values()) Object.assign(account, { isRefused: false, failures: 0 })
    if (pending !== null) pending = null
  }

  function forgiveWall(): void {
    if (isWallTrusted) return
    accounts.clear()
    clientRequestMs = -Infinity
    isWallTrusted = true
  }

  async function reboot(): Promise<void> {
    crash = null
    await kill(0)
    rmSync(join(directory, 'run'), { recursive: true })
    mkdirSync(join(directory, 'run'))
    const { bootMs, wallMs } = clock.now()
    earlierMs += bootMs - 1_000
    clock = createFakeClock({ bootMs: 1_000, wallMs, isBusy })
    forgiveWall()
    for (const account of accounts.values()) account.goodUntilMs = -Infinity
    await revive()
  }

  function reload(change: Extract<Step, { do: 'reload' }>): void {
    const former = runningName
    settings = { credentials: change.credentials, service: change.service, maxAgeMs: change.maxAgeMs }
    const { keeper, store } = current!
    const account = accountOf(accountName())
    // Another maxAge may make a refresh due.
    account.goodUntilMs = -Infinity
    if (former !== accountName()) {
      // Changed credentials are asked with at once, also if they were refused in former times.
      Object.assign(account, { isRefused: false, failures: 0 })
      accountOf(former).goodUntilMs = -Infinity
      pending = null
    }
    runningName = accountName()
    const owner = current!
    keeper.reload(settingsFor(store, () => !owner.isDead))
  }

  function tryCredentials(credentials: string): void {
    const { keeper, store, life } = current!
    settings = { ...settings, credentials }
    const name = accountName()
    if (name === runningName) return
    Object.assign(accountOf(name), { isRefused: false, failures: 0 })
    const owner = current!
    const tried = settingsFor(store, () => !owner.isDead)
    const finish = async (): Promise<void> => {
      const outcome = await keeper.tryCredentials(tried, { cause: 'reload', signal: life.signal })
      if (outcome?.kind === 'ok' && !owner.isDead) runningName = name
    }
    void finish()
  }

  function checkState(): void {
    const { keeper, isDead } = current!
    if (isDead) return
    const state = keeper.state()
    const now = clock.now()
    const token = usableToken(state, now)
    if (token !== null) {
      check((ends.get(token.accessToken) ?? -Infinity) > nowMs() - 1, 'a token is handed out after its end')
      check(token.baseUrl === state.baseUrl, 'a token of another service is handed out')
    }
    checkPlan(state, now, check)
  }

  async function act(step: Step): Promise<void> {
    const { keeper, life } = current!
    switch (step.do) {
      case 'answer':
        answer = step
        return
      case 'suspend':
        return clock.suspend(step.ms)
      case 'jump':
        clock.jumpWall(step.ms)
        wallJumpMs += step.ms
        isWallTrusted = false
        return
      case 'reload':
        return reload(step)
      case 'try':
        return tryCredentials(step.credentials)
      case 'crash':
        if (step.effects === 0) return kill(step.turns)
        crash = { effects: step.effects, turns: step.turns }
        return
      case 'reboot':
        return reboot()
      case 'restart':
        await stopInOrder()
        return start()
      case 'wait':
      case 'need':
      case 'reject':
      case 'operator':
        return takeStep(step, { keeper, now: () => keeper.now(), clock, signal: life.signal })
    }
  }

  await start()
  return {
    async play(step) {
      await act(step)
      await clock.settle()
      await revive()
      checkState()
    },
    broken: () => broken,
    async end() {
      current?.life.abort()
      await (current?.isDead === true ? undefined : current?.running)
      await clock.settle()
      rmSync(root, { recursive: true, force: true })
    },
  }
}
