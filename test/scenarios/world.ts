// The world of a scenario: the whole daemon; only the service, systemd, time and chance are not real.
import {
  cpSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readlinkSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import { createDaemon, type Daemon, type Load } from '../../src/daemon/daemon.ts'
import { parseDuration } from '../../src/lib/duration.ts'
import type {
  RejectResult,
  RefreshResult,
  StatusResult,
  TokenResult,
  TransientReason,
} from '../../src/protocol.ts'
import { createLoad } from '../../src/daemon/run-daemon.ts'
import type { ServiceResponse } from '../../src/source/answer.ts'
import type { FetchTokenOptions } from '../../src/source/fetch-token.ts'
import { outcomeOf } from '../../src/source/failures.ts'
import type { FetchToken } from '../../src/token/outcome.ts'
import { fingerprintOf } from '../../src/protocol.ts'
import { textOf } from '../support/daemon.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { watchFileCalls } from '../support/file-calls.ts'
import { connectRaw, type RawClient, type RawFrame } from '../support/ipc-client.ts'
import { jwtOf } from '../support/jwt.ts'
import { createMemoryStream, type MemoryStream } from '../support/memory-stream.ts'
import { expectUntil } from '../support/until.ts'

/** The service's answers from now on. */
export interface ServiceAnswer {
  jwt?: string
  opaque?: string
  again?: boolean
  life?: string
  /** Age of the token. */
  issued?: string
  /** Replaces the claim. */
  exp?: number
  without?: ('iat' | 'Date')[]
  status?: number
  detail?: string
  /** Sent as JSON, with the token for its name. */
  body?: object
  'Retry-After'?: number | string
  silent?: TransientReason
  hangs?: boolean
  /** Time that an answer takes. */
  after?: string
  /** Only requests with the credentials of this name are answered so. */
  to?: string
}
/** Settings; `credentials` and `baseUrl` by a name. */
export interface Change extends Partial<Record<'credentials' | 'baseUrl', string>> {
  maxAge?: string
  initialDelay?: string
  maxDelay?: string
  noTokenAfter?: string
  /** Key and secret are in files. */
  files?: boolean
  share?: boolean
  /** `service` of the configuration. */
  description?: object | null
}
export interface Given extends Change {
  'local clock'?: string
}
const GIVEN_UP = { kind: 'transient', reason: 'timeout', detail: 'Given up' } as const
const START_WALL_MS = 1_800_000_000_000
/** A file system in memory, so that nothing is ever waited for. */
const MEMORY_DIRECTORY = '/dev/shm'
/** Requests to the file system, as process.getActiveResourcesInfo names them. */
const FILE_REQUESTS = new Set(['FSReqPromise', 'FSReqCallback', 'FileHandleCloseReq', 'CloseReq'])
/** More than any scenario causes: a loop that asks without end ends here instead of never. */
const MAX_REQUESTS = 1_000

export type World = ReturnType<typeof createWorld>

/** A full disk (of the runtime or the state directory), a log without a reader. */
export type Harm = 'run' | 'state' | 'log'

interface Running {
  readonly daemon: Daemon
  readonly ended: Promise<void>
  readonly stopping: AbortController
  readonly log: MemoryStream
  readonly notifications: string[]
  readonly client: RawClient
  /** SIGHUP. */
  reload(): void
  /** SIGUSR2. */
  refresh(): void
}

export function createWorld(given: Given, random = (): number => 0.5) {
  const directory = mkdtempSync(join(MEMORY_DIRECTORY, 'kyc-tokend-scenario-'))
  const runtimeDirectory = join(directory, 'run')
  const socketPath = join(runtimeDirectory, 'ipc.sock')
  const configPath = join(directory, 'kyc-tokend.config.json')
  mkdirSync(runtimeDirectory)
  mkdirSync(join(directory, 'state'))

  let loading = 0
  const isBusy = (): boolean =>
    loading > 0 || process.getActiveResourcesInfo().some((name) => FILE_REQUESTS.has(name))
  const offsetMs = durationMs(given['local clock'] ?? '0s')
  const createClock = (bootMs: number, wallMs: number) => createFakeClock({ bootMs, wallMs, isBusy })
  let clock = createClock(1_000_000, START_WALL_MS + offsetMs)
  let serviceOffsetMs = -offsetMs
  /** By the service's clock, which is right: the host's, less all that was done to it; in ms since 1970. */
  const serviceNowMs = (): number => clock.now().wallMs + serviceOffsetMs

  const names = new Map<string, string>()
  let answer: ServiceAnswer = { status: 503 }
  const answers = new Map<string | undefined, ServiceAnswer>([[undefined, answer]])
  let lastToken = ''
  let requests = 0
  let askedAs = 'none'
  let settings: Given = { credentials: 'first', baseUrl: 'first', ...given }
  let running: Running | null = null
  /** The directory whose disk is full. */
  let full: 'run' | 'state' | null = null
  const isOnFullDisk = (fd: unknown): boolean =>
    full !== null && readlinkSync(`/proc/self/fd/${String(fd)}`).startsWith(join(directory, full))
  const endWatching = watchFileCalls((name, [fd]) => {
    if (name === 'writeFile' && isOnFullDisk(fd))
      throw Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' })
  })
  const logs: MemoryStream[] = []

  function createFetchToken({ service, pair, secrets }: FetchTokenOptions): FetchToken {
    const answerTo: FetchToken = async (signal) => {
      requests += 1
      const name = pair.apiKey!.reveal().replace('key-of-', '')
      answer = answers.get(name) ?? answers.get(undefined)!
      const asked = `${pair.apiKey!.reveal()} at ${service.tokenUrl}`
      askedAs = asked.replaceAll(/key-of-|https:..|.example|.token.external.jwt/g, '')
      if (requests > MAX_REQUESTS) throw new Error('The service is asked without end')
      const { hangs = false, after } = answer
      if (hangs || after !== undefined) await clock.sleep(hangs ? Infinity : durationMs(after ?? ''), signal)
      if (signal.aborted) return GIVEN_UP
      if (answer.silent !== undefined)
        return { kind: 'transient', reason: answer.silent, detail: 'No answer' }
      const { wallMs } = clock.now()
      return outcomeOf(httpAnswer(), { service, pair, wallMs, secrets: secrets() })
    }
    return async (signal, attempt) => {
      await attempt.beforeRequest()
      return signal.aborted ? GIVEN_UP : answerTo(signal, attempt)
    }
  }

  function httpAnswer(): ServiceResponse {
    const { status = 200, without = [] } = answer
    const headers: Record<string, string> = {}
    if (!without.includes('Date')) headers['date'] = new Date(serviceNowMs()).toUTCString()
    const retryAfter = retryAfterHeader(answer['Retry-After'])
    if (retryAfter !== undefined) headers['retry-after'] = retryAfter
    return { status, headers, body: Buffer.from(bodyText()) }
  }

  function retryAfterHeader(value: ServiceAnswer['Retry-After']): string | undefined {
    if (typeof value !== 'string') return value?.toString()
    return new Date(serviceNowMs() + durationMs(value.replace(/^in /, ''))).toUTCString()
  }

  function bodyText(): string {
    if (answer.body !== undefined) {
      const token = tokenText()
      return JSON.stringify(answer.body, (_name, value: unknown) =>
        value === names.get(token) ? token : value,
      )
    }
    if (answer.detail !== undefined)
      return JSON.stringify({ title: 'KnownRuntimeError', detail: answer.detail })
    return answer.status === undefined ? JSON.stringify({ accessToken: tokenText() }) : ''
  }

  function tokenText(): string {
    if (answer.again !== true) lastToken = answer.opaque ?? jwtText()
    names.set(lastToken, answer.opaque ?? answer.jwt ?? names.get(lastToken) ?? '')
    return lastToken
  }

  function jwtText(): string {
    const iat = (serviceNowMs() - durationMs(answer.issued ?? '0s')) / 1000
    const exp = answer.exp ?? iat + durationMs(answer.life ?? '1h') / 1000
    const claims = answer.without?.includes('iat') ? {} : { iat }
    return jwtOf({ ...claims, exp, name: answer.jwt })
  }

  function writeConfig(): void {
    const { credentials = '', baseUrl, maxAge, noTokenAfter = null, ...retry } = settings
    const config = {
      baseUrl: `https://${baseUrl}.example`,
      credentials: settings.files === true ? sources : pairOf(credentials),
      runtimeDirectory,
      stateDirectory: join(directory, 'state'),
      http: false,
      refresh: { maxAge },
      retry: { initialDelay: retry.initialDelay, maxDelay: retry.maxDelay },
      alerts: { noTokenAfter },
      log: { level: 'debug', format: 'json' },
      service: settings.description ?? null,
      ...(settings.share === true && { share: { servers: [join(directory, 'no-redis.sock')] } }),
    }
    writeFileSync(configPath, JSON.stringify(config), { mode: 0o600 })
  }

  const sources = {
    apiKey: { file: join(directory, 'apiKey') },
    apiSecret: { file: join(directory, 'apiSecret') },
  }

  function pairOf(credentials: string): { apiKey: string; apiSecret: string } {
    return { apiKey: `key-of-${credentials}`, apiSecret: `secret-of-${credentials}` }
  }

  function writeSecrets({ credentials = '' }: Given): void {
    for (const [name, text] of Object.entries(pairOf(credentials)))
      writeFileSync(join(directory, name), text, { mode: 0o600 })
  }

  const load: Load = async (fixed) => {
    loading += 1
    return createLoad({ configPath, env: {} })(fixed).finally(() => {
      loading -= 1
    })
  }

  async function start(change: Change = {}): Promise<void> {
    settings = { ...settings, ...change }
    writeConfig()
    if (settings.files === true) writeSecrets(settings)
    const stopping = new AbortController()
    const log = createMemoryStream()
    logs.push(log)
    const notifications: string[] = []
    let reload = (): void => undefined
    let refresh = (): void => undefined
    const daemon = await createDaemon(await load(), {
      env: { NOTIFY_SOCKET: '/run/systemd/notify' },
      stderr: log,
      inherited: { ipc: [], http: [], metrics: [] },
      load,
      clock,
      random,
      stop: stopping.signal,
      createFetchToken,
      sendDatagram(_path, text) {
        notifications.push(
          ...[...String(text).matchAll(/^(READY|RELOADING|STOPPING)=1$/gm)].map(([, word = '']) => word),
        )
      },
    })
    const ended = daemon.run({
      onReload(listener) {
        reload = listener
      },
      onRefresh(listener) {
        refresh = listener
      },
    })
    const client = await Promise.race([connectWhenListening(), ended.then(() => null)])
    if (client === null) throw new Error('The daemon has ended')
    running = { daemon, ended, stopping, log, notifications, client, reload, refresh }
    await clock.settle()
  }

  async function connectWhenListening(): Promise<RawClient> {
    for (;;) {
      try {
        return await connectRaw(socketPath)
      } catch {
        await turn()
      }
    }
  }

  const alive = (): Running => {
    if (running === null) throw new Error('The scenario does not start the daemon')
    return running
  }

  /** The daemon ends in order. */
  async function stop(): Promise<void> {
    const { daemon, ended, stopping, client } = alive()
    running = null
    client.socket.destroy()
    stopping.abort()
    await ended
    await daemon.close()
  }

  /**
   * The daemon is killed, `turns` turns of its loop after SIGUSR2 if there are any. All that it writes from
   * here on is lost.
   */
  async function crash(turns = 0): Promise<void> {
    if (turns > 0) alive().refresh()
    for (let left = turns; left > 0; left -= 1) await turn()
    const left = `${directory}.left`
    cpSync(directory, left, { recursive: true, filter: (path) => !lstatSync(path).isSocket() })
    await stop()
    rmSync(directory, { recursive: true })
    renameSync(left, directory)
  }

  async function ask(type: string, data: object = {}): Promise<RawFrame> {
    const { client, ended } = alive()
    const index = client.frames.length
    client.ask(type, { id: String(index), ...data })
    const frame = await Promise.race([client.frame(index), ended.then(() => undefined)])
    if (frame === undefined) throw new Error('The daemon does not answer')
    await clock.settle()
    return frame
  }

  /** Records are written in their order, and this one at once. */
  async function alertLog(): Promise<string> {
    const { daemon, log } = alive()
    daemon.log('error', 'The scenario reads the log', { event: 'read' })
    const lines = await expectUntil(
      'the log',
      () => log.lines().at(-1)?.includes('"read"') === true && log.lines(),
    )
    return lines
      .map((line) => JSON.parse(line) as LogLine)
      .flatMap(alertWords)
      .join(', ')
  }

  return {
    service: (next: ServiceAnswer): void => {
      if (next.to === undefined) answers.clear()
      answers.set(next.to, next)
    },
    start,
    stop,
    crash,
    reboot: async (): Promise<void> => {
      await crash()
      rmSync(runtimeDirectory, { recursive: true })
      mkdirSync(runtimeDirectory)
      clock = createClock(1_000, clock.now().wallMs)
    },
    wait: (ms: number): Promise<void> => clock.advance(ms),
    suspend: (ms: number): void => clock.suspend(ms),
    setClock: (ms: number): void => {
      clock.jumpWall(ms)
      serviceOffsetMs -= ms
    },
    /** A client's report. */
    report: async (name: string): Promise<RejectResult> => {
      const text = [...names].find(([, called]) => called === name)?.[0] ?? name
      const { data } = await ask('token.reject', { fingerprint: fingerprintOf(text) })
      return data as unknown as RejectResult
    },
    need: async (ms: number): Promise<void> => {
      await ask('token.get', { minValidSeconds: ms / 1000 })
    },
    refresh: async (): Promise<string> => {
      const asked = ask('refresh.request')
      await clock.settle()
      // Secret files are left alone for so long.
      if (settings.files === true) await clock.advance(2_000)
      const { outcome, reason } = (await asked).data as unknown as RefreshResult
      return reason ?? outcome
    },
    reload: async (change: Change): Promise<void> => {
      settings = { ...settings, ...change }
      writeConfig()
      alive().reload()
      await clock.settle()
    },
    /** The secret files are written: another pair, or the same once more. */
    rotate: async (credentials: string): Promise<void> => {
      settings = { ...settings, credentials }
      writeSecrets(settings)
      await clock.settle()
    },
    /** What a scenario may expect (README.md). */
    seen: async () => {
      const status = (await ask('status.get')).data as unknown as StatusResult
      const { data } = await ask('token.get')
      const token = 'accessToken' in data ? (data as unknown as TokenResult) : null
      const { wallMs } = clock.now()
      return {
        state: status.state,
        token: token === null ? 'none' : (names.get(token.accessToken) ?? token.accessToken),
        left: token && Date.parse(token.expiresAt) - wallMs,
        stale: token && token.stale,
        requests,
        'asked as': askedAs,
        next: status.nextAttemptAt === null ? 'never' : Date.parse(status.nextAttemptAt) - wallMs,
        failure: status.failure?.reason ?? 'none',
        detail: status.failure?.detail ?? 'none',
        expiry: token?.expirySource ?? 'none',
        'refused by': token?.refusedBy?.join(' ') ?? 'none',
        attempts: status.failure?.attempts ?? 0,
        alert: status.alert?.reason ?? 'none',
        'alert log': await alertLog(),
        systemd: alive().notifications.join(', '),
        share: status.share?.state ?? 'none',
        configuration: status.daemon.configuration.state,
        problem: (status.daemon.configuration.problem ?? 'none').replaceAll(`${directory}/`, ''),
      }
    },
    /** The same in the daemon's own words. */
    ask: async <T>(type: string, data?: object) => (await ask(type, data)).data as T,
    /** SIGUSR2. */
    signal: async (): Promise<void> => {
      alive().refresh()
      await clock.settle()
    },
    now: () => clock.now(),
    awakeMs: () => clock.awakeMs(),
    serviceNowMs,
    /** The text of a file that the daemon wrote, by its path in the directories; '' where there is none. */
    file: (path: string): string => textOf(join(directory, path)) ?? '',
    harm: (what: Harm): void => {
      if (what === 'run' || what === 'state') full = what
      else alive().log.leave()
    },
    /** The full disk has space again. */
    freeDisk: (): void => {
      full = null
    },
    isFull: (): boolean => full !== null,
    /** All that was logged, by process. Records are written when the daemon ends, at the latest. */
    logged: (): string[] => logs.map((log) => log.lines().join('\n')),
    end: async (): Promise<void> => {
      if (running !== null) await stop()
      endWatching()
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

interface LogLine {
  readonly event: string
  readonly reminder?: number
}

function alertWords({ event, reminder }: LogLine): string[] {
  if (event === 'alert-resolved') return ['resolved']
  if (event !== 'alert') return []
  return [reminder === undefined ? 'alert' : 'reminder']
}

/** Milliseconds of "1h", "+1h" or "-1h". Throws where it is no duration: a scenario must not be misread. */
export function durationMs(text: string): number {
  const ms = parseDuration(text.replace(/^[+-]/, ''))
  if (ms === undefined) throw new Error(`"${text}" is no duration`)
  return text.startsWith('-') ? -ms : ms
}
