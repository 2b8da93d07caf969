// The world of a scenario: a scripted service, a host whose clock obeys, and the real loop with its real memory on disk.
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Instant } from '../../src/lib/clock.ts'
import { parseDuration } from '../../src/lib/duration.ts'
import type { LogFields } from '../../src/lib/log.ts'
import { Secret } from '../../src/lib/secret.ts'
import { classify } from '../../src/source/response.ts'
import { createKeeper, type RefreshSettings, type Keeper } from '../../src/token/keeper.ts'
import { createStateStore, type StateStore } from '../../src/storage/state-store.ts'
import { createAlerts } from '../../src/report/alerts.ts'
import type { Attempt, FetchOutcome, TransientReason } from '../../src/token/outcome.ts'
import { dueAtMs, isStale, phaseOf, usableToken, type Policy } from '../../src/token/state.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { jwtOf } from '../support/jwt.ts'

/** The service's answers from now on. */
export interface ServiceAnswer {
  jwt?: string
  opaque?: string
  /** The token has so many characters. */
  'token length'?: number
  /** The body has so many bytes. */
  'body length'?: number
  again?: boolean
  life?: string
  /** Age of the token. */
  issued?: string
  /** Replace the claims. */
  exp?: unknown
  iat?: unknown
  'exp in ms'?: boolean
  without?: ('iat' | 'Date')[]
  status?: number
  detail?: string
  text?: string
  'Retry-After'?: number | string
  Location?: string
  silent?: TransientReason
  hangs?: boolean
}
export interface Change extends Partial<Record<'credentials' | 'baseUrl', string>> {
  maxAge?: string
  initialDelay?: string
  maxDelay?: string
}
export interface Given extends Change {
  'local clock'?: string
}
/** The expectations of a scenario. */
export interface Seen {
  state: string
  token: string
  left: number | null
  stale: boolean | null
  requests: number
  next: number | 'never'
  failure: string
  attempts: number
  alert: string
  /** The log of alerts since the daemon was started: alert, repeated (found at the start), reminder, resolved. */
  'alert log': string
}

const REMIND_AFTER_MS = [1, 6, 24].map((hours) => hours * 3_600_000)
const START_WALL_MS = 1_800_000_000_000
/** A file system in memory, so that nothing is ever waited for. */
const MEMORY_DIRECTORY = '/dev/shm'
/** More than any scenario causes: a loop that asks without end ends here instead of never. */
const MAX_REQUESTS = 1_000

export interface World {
  service(answer: ServiceAnswer): void
  start(change?: Change): Promise<void>
  /** The daemon ends in order. */
  stop(): Promise<void>
  /** The daemon is killed. */
  crash(): Promise<void>
  reboot(): Promise<void>
  wait(ms: number): Promise<void>
  suspend(ms: number): void
  setClock(ms: number): void
  /** A client's report; the verdict, and for how long it is held. */
  report(name: string): Promise<{ verdict: string; retryAfterMs?: number }>
  need(ms: number): Promise<void>
  refresh(): Promise<string>
  reload(change: Change): Promise<void>
  seen(): Seen
  end(): Promise<void>
}

export function createWorld(given: Given): World {
  const directory = mkdtempSync(join(MEMORY_DIRECTORY, 'kyc-tokend-scenario-'))
  const directories = { runtimeDirectory: join(directory, 'run'), stateDirectory: join(directory, 'state') }
  mkdirSync(directories.runtimeDirectory)
  mkdirSync(directories.stateDirectory)

  let writing = 0
  const isBusy = (): boolean => writing > 0
  const offsetMs = durationMs(given['local clock'] ?? '0s')
  const createClock = (bootMs: number, wallMs: number) => createFakeClock({ bootMs, wallMs, isBusy })
  let clock = createClock(1_000_000, START_WALL_MS + offsetMs)
  /** The service's own clock, which is right: the host's, less all that was done to it. */
  let serviceOffsetMs = -offsetMs
  const serviceNowMs = (): number => clock.now().wallMs + serviceOffsetMs

  const names = new Map<string, string>()
  let answer: ServiceAnswer = { status: 503 }
  let lastToken = ''
  let requests = 0
  let settings: Given = { credentials: 'first', baseUrl: 'first', ...given }
  let keeper: Keeper | null = null
  let memory: StateStore | null = null
  let life = new AbortController()
  let running: Promise<unknown> = Promise.resolve()
  let alertLog: string[] = []

  async function watched<T>(work: Promise<T>): Promise<T> {
    writing += 1
    try {
      return await work
    } finally {
      writing -= 1
    }
  }

  async function fetchToken(signal: AbortSignal, { beforeRequest }: Attempt): Promise<FetchOutcome> {
    await beforeRequest()
    if (signal.aborted) return { kind: 'transient', reason: 'timeout', detail: 'Given up' }
    requests += 1
    if (requests > MAX_REQUESTS) throw new Error('The service is asked without end')
    if (answer.hangs === true) {
      await clock.sleep(Infinity, signal)
      return { kind: 'transient', reason: 'timeout', detail: 'Given up' }
    }
    if (answer.silent !== undefined) return { kind: 'transient', reason: answer.silent, detail: 'No answer' }
    return classify(httpAnswer(), { wallMs: clock.now().wallMs, secrets: [] })
  }

  function httpAnswer(): Parameters<typeof classify>[0] {
    const { status = 200, without = [], Location } = answer
    const headers: Record<string, string> = {}
    if (!without.includes('Date')) headers['date'] = new Date(serviceNowMs()).toUTCString()
    const retryAfter = retryAfterHeader(answer['Retry-After'])
    if (retryAfter !== undefined) headers['retry-after'] = retryAfter
    if (Location !== undefined) headers['location'] = Location
    return { status, headers, body: Buffer.from(bodyText().padEnd(answer['body length'] ?? 0)) }
  }

  function retryAfterHeader(value: ServiceAnswer['Retry-After']): string | undefined {
    if (typeof value !== 'string') return value?.toString()
    return new Date(serviceNowMs() + durationMs(value.replace(/^in /, ''))).toUTCString()
  }

  function bodyText(): string {
    if (answer.text !== undefined) return answer.text
    if (answer.detail !== undefined)
      return JSON.stringify({ title: 'KnownRuntimeError', detail: answer.detail })
    return answer.status === undefined ? JSON.stringify({ accessToken: tokenText() }) : ''
  }

  function tokenText(): string {
    if (answer.again !== true) lastToken = opaqueText() ?? jwtText()
    names.set(lastToken, answer.opaque ?? answer.jwt ?? names.get(lastToken) ?? '')
    return lastToken
  }

  function opaqueText(): string | undefined {
    return answer.opaque?.padEnd(answer['token length'] ?? 0, '-')
  }

  function jwtText(): string {
    const iat = (serviceNowMs() - durationMs(answer.issued ?? '0s')) / 1000
    const unit = answer['exp in ms'] === true ? 1000 : 1
    const exp = answer.exp ?? (iat + durationMs(answer.life ?? '1h') / 1000) * unit
    const claims = answer.without?.includes('iat') ? {} : { iat: answer.iat ?? iat * unit }
    return jwtOf({ ...claims, exp, name: answer.jwt })
  }

  function askingNow(opened: StateStore): RefreshSettings {
    const baseUrl = `https://${settings.baseUrl}.example`
    const policy: Policy = {
      maxAgeMs: durationMs(settings.maxAge ?? '15m'),
      initialDelayMs: durationMs(settings.initialDelay ?? '1s'),
      maxDelayMs: durationMs(settings.maxDelay ?? '5m'),
    }
    const secret = new Secret(settings.credentials ?? '')
    const credentialsId = opened.credentialsIdOf(baseUrl, { apiKey: secret, apiSecret: secret })
    return { fetchToken, policy, baseUrl, credentialsId }
  }

  async function start(change: Change = {}): Promise<void> {
    settings = { ...settings, ...change }
    const opened = await createStateStore({ ...directories, clock, log: () => undefined })
    const asking = askingNow(opened)
    const recalled = await opened.load(asking)
    const remember = async (state: Parameters<StateStore['save']>[0]): Promise<void> =>
      watched(opened.save(state))
    const started = createKeeper(recalled, {
      settings: asking,
      clock,
      random: () => 0.5,
      saveState: remember,
    })
    life = new AbortController()
    alertLog = []
    const alerts = createAlerts({
      keeper: started,
      path: join(directories.runtimeDirectory, 'alert.json'),
      settings: { remindAfterMs: REMIND_AFTER_MS, noTokenAfterMs: null, contact: null },
      host: () => 'host',
      log: (_level, _sentence, fields) => {
        alertLog.push(alertWord(fields))
      },
    })
    running = Promise.all([started.run(life.signal), alerts.run(life.signal)])
    memory = opened
    keeper = started
    await clock.settle()
  }

  /** The daemon is gone. What its request was about is never known: nothing of it may be written any more. */
  async function vanish(): Promise<void> {
    life.abort()
    await running
    keeper = null
  }

  const alive = (): Keeper => {
    if (keeper === null) throw new Error('The scenario does not start the daemon')
    return keeper
  }

  return {
    service(next) {
      answer = next
    },
    start,
    async stop() {
      const state = alive().state()
      await vanish()
      await memory?.close(state)
    },
    crash: vanish,
    async reboot() {
      await vanish()
      rmSync(directories.runtimeDirectory, { recursive: true })
      mkdirSync(directories.runtimeDirectory)
      clock = createClock(1_000, clock.now().wallMs)
    },
    async wait(ms) {
      await clock.advance(ms)
    },
    suspend(ms) {
      clock.suspend(ms)
    },
    setClock(ms) {
      clock.jumpWall(ms)
      serviceOffsetMs -= ms
    },
    async report(name) {
      const { fingerprintOf } = await import('../../src/token/token.ts')
      const text = [...names].find(([, called]) => called === name)?.[0] ?? name
      const verdict = alive().reject(fingerprintOf(text))
      await clock.settle()
      return verdict
    },
    async need(ms) {
      alive().need(ms)
      await clock.settle()
    },
    async refresh() {
      const outcome = await alive().refresh(life.signal)
      await clock.settle()
      return outcome === undefined || !('reason' in outcome) ? (outcome?.kind ?? 'none') : outcome.reason
    },
    async reload(change) {
      settings = { ...settings, ...change }
      if (memory === null) throw new Error('The scenario does not start the daemon')
      const asking = askingNow(memory)
      alive().reload(asking)
      await clock.settle()
    },
    seen: () => seenOf(alive(), clock.now(), { requests, names, alertLog }),
    async end() {
      life.abort()
      await running
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

function alertWord({ event, reminder, ...others }: LogFields): string {
  if (event === 'alert-resolved') return 'resolved'
  // The one field that is true marks an alert that was raised before this start.
  if (Object.values(others).includes(true)) return 'repeated'
  return reminder === undefined ? 'alert' : 'reminder'
}

function seenOf(
  keeper: Keeper,
  now: Instant,
  {
    requests,
    names,
    alertLog,
  }: { requests: number; names: ReadonlyMap<string, string>; alertLog: readonly string[] },
): Seen {
  const state = keeper.state()
  const token = usableToken(state, now)
  const dueInMs = dueAtMs(state) - now.bootMs
  return {
    state: phaseOf(state, now),
    token: token === null ? 'none' : (names.get(token.accessToken) ?? token.accessToken),
    left: token === null ? null : token.expiresAtMs - now.bootMs,
    stale: token === null ? null : isStale(token, now),
    requests,
    next: dueInMs === Infinity ? 'never' : dueInMs,
    failure: state.failure?.reason ?? 'none',
    attempts: state.failure?.attempts ?? 0,
    alert: state.alert?.reason ?? 'none',
    'alert log': alertLog.join(', '),
  }
}

/** Milliseconds of "1h", "+1h" or "-1h". Throws where it is no duration: a scenario must not be misread. */
export function durationMs(text: string): number {
  const ms = parseDuration(text.replace(/^[+-]/, ''))
  if (ms === undefined) throw new Error(`"${text}" is no duration`)
  return text.startsWith('-') ? -ms : ms
}
