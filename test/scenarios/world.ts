// The world of a story: the whole daemon; only the service, systemd, time and chance are not real.
import { cpSync, lstatSync, mkdirSync, readlinkSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import { createDaemon, type Load } from '../../src/daemon/daemon.ts'
import { createLoad } from '../../src/daemon/run-daemon.ts'
import { parseDuration } from '../../src/lib/duration.ts'
import type { RejectResult, RefreshResult, StatusResult, TokenResult } from '../../src/protocol.ts'
import { fingerprintOf, type TransientReason } from '../../src/protocol.ts'
import { outcomeOf } from '../../src/source/failures.ts'
import type { FetchTokenOptions } from '../../src/source/fetch-token.ts'
import type { FetchToken } from '../../src/token/outcome.ts'
import { textOf } from '../support/daemon.ts'
import { createFakeClock, filesAreBusy } from '../support/fake-clock.ts'
import { watchFileCalls } from '../support/file-calls.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { jwtOf } from '../support/jwt.ts'
import { createMemoryStream } from '../support/memory-stream.ts'
import { tempDirectory } from '../support/temp-directory.ts'

/** The service's answers from now on; durations as texts. */
export interface ServiceAnswer {
  jwt?: string
  opaque?: string
  again?: boolean
  life?: string
  /** Age of the token. */
  issued?: string
  without?: ('iat' | 'Date')[]
  status?: number
  detail?: string
  /** Further fields of the answer. */
  body?: object
  'Retry-After'?: number
  silent?: TransientReason
  hangs?: boolean
  /** Time that an answer takes. */
  after?: string
  /** Only requests with the credentials of this name are answered so. */
  to?: string
}
/** Its words: one that is mistaken must not be passed over. */
const ANSWER_WORDS =
  'jwt opaque again life issued without status detail body Retry-After silent hangs after to'.split(' ')
/** As in the configuration; credentials and service by a name. */
export interface Settings extends Readonly<Record<string, unknown>> {
  readonly credentials?: string
  readonly baseUrl?: string
}
/** A full disk (of the runtime or the state directory), a log without a reader, a disk that is mended. */
export type Harm = 'run' | 'state' | 'log' | 'none'
/** A word, or a word with its value. */
export type Step = string | { readonly [word: string]: unknown }

const GIVEN_UP = { kind: 'transient', reason: 'timeout', detail: 'Given up' } as const
/** More than any story causes: a loop that asks without end ends here instead of never. */
const MAX_REQUESTS = 1_000

type Running = Awaited<ReturnType<typeof startIn>>
export type World = Awaited<ReturnType<typeof createWorld>>

/** `through`: the reading of the files, of which a test makes another one. */
export async function createWorld({ random = (): number => 0.5, through = (load: Load) => load } = {}) {
  const directory = await tempDirectory('memory')
  const runtimeDirectory = join(directory, 'run')
  const stateDirectory = join(directory, 'state')
  const configPath = join(directory, 'kyc-tokend.config.json')
  for (const path of [runtimeDirectory, stateDirectory]) mkdirSync(path)

  let loading = 0
  const isBusy = (): boolean => loading > 0 || filesAreBusy()
  let clock = createFakeClock({ isBusy })
  const service = createService(() => clock)
  let settings: Settings = { credentials: 'first', baseUrl: 'first', alerts: { noTokenAfter: null } }
  let running: Running | null = null
  const logs: Running['log'][] = []
  let full: Harm = 'none'
  const endWatching = watchFileCalls((name, [fd]) => {
    if (name !== 'writeFile' || full === 'none') return
    if (readlinkSync(`/proc/self/fd/${String(fd)}`).startsWith(join(directory, full)))
      throw Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' })
  })

  /** Writes the files of key and secret, and the configuration with its further settings. */
  function write(change: Settings = {}): void {
    settings = { ...settings, ...change }
    const { credentials, baseUrl, ...others } = settings
    const config = {
      baseUrl: `https://${baseUrl}.example`,
      credentials: {
        apiKey: { file: 'apiKey' },
        apiSecret: { file: 'apiSecret' },
      },
      http: false,
      log: {
        level: 'debug',
        format: 'json',
      },
      runtimeDirectory,
      stateDirectory,
      ...others,
    }
    writeFileSync(join(directory, 'apiKey'), `key-of-${credentials}`, { mode: 0o600 })
    writeFileSync(join(directory, 'apiSecret'), `secret-of-${credentials}`, { mode: 0o600 })
    writeFileSync(configPath, JSON.stringify(config), { mode: 0o600 })
  }

  const load = through(async (inForce) => {
    loading += 1
    return createLoad({ configPath, env: {} })(inForce).finally(() => (loading -= 1))
  })

  const alive = (): Running => {
    if (running === null) throw new Error('The story does not start the daemon')
    return running
  }

  async function start(change?: Settings): Promise<void> {
    write(change)
    running = await startIn(runtimeDirectory, {
      load,
      clock,
      random,
      createFetchToken: service.createFetchToken,
    })
    logs.push(running.log)
    await clock.settle()
  }

  /** The daemon ends in order. */
  async function stop(): Promise<void> {
    const { end } = alive()
    running = null
    await end()
  }

  /**
   * The daemon is killed, so many turns of its loop after SIGUSR2 if there are any. All that it writes from here on is
   * lost.
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

  async function ask<T>(type: string, data: object = {}): Promise<T> {
    const answer = askOnce(join(runtimeDirectory, 'ipc.sock'), type, data)
    const frame = await Promise.race([answer, alive().ended.then(() => undefined)])
    if (frame === undefined) throw new Error('The daemon does not answer')
    await clock.settle()
    return frame.data as T
  }

  const steps: Readonly<Record<string, (value: never) => unknown>> = {
    service: service.answer,
    start,
    stop,
    crash,
    reboot: async () => {
      await crash()
      rmSync(runtimeDirectory, { recursive: true })
      mkdirSync(runtimeDirectory)
      clock = createFakeClock({ isBusy, bootMs: 1_000, wallMs: clock.now().wallMs })
    },
    wait: (duration: string) => clock.advance(durationMs(duration)),
    suspend: (duration: string) => clock.suspend(durationMs(duration)),
    'set clock': (duration: string) => {
      clock.jumpWall(durationMs(duration))
      service.aheadMs -= durationMs(duration)
    },
    reports: async (name: string) => {
      const fingerprint = fingerprintOf(service.tokens.get(name) ?? name)
      const { verdict, retryAfterSeconds } = await ask<RejectResult>('token.reject', { fingerprint })
      return { says: verdict, for: `${retryAfterSeconds}s` }
    },
    needs: (duration: string) => ask('token.get', { minValidSeconds: durationMs(duration) / 1_000 }),
    operator: async () => {
      const { outcome, reason } = await ask<RefreshResult>('refresh.request')
      return { says: reason ?? outcome }
    },
    SIGUSR2: async () => {
      alive().refresh()
      await clock.settle()
    },
    reload: async (change: Settings) => {
      write(change)
      alive().reload()
      await clock.settle()
    },
    write: async (change: Settings) => {
      write(change)
      await clock.settle()
    },
    harm: (what: Harm) => {
      if (what === 'log') alive().log.leave()
      else full = what
    },
  }

  return {
    /** Resolves with what is answered. Throws if the step is unknown. */
    play: async (step: Step): Promise<{ says?: string; for?: string }> => {
      const [word, value] = partsOf(step)
      const act = steps[word]
      if (act === undefined) throw new Error(`Unknown step: ${word}`)
      return (await act(value as never)) ?? {}
    },
    /** What a scenario may expect (README.md). */
    seen: async () => {
      const status = await ask<StatusResult>('status.get')
      const answer = await ask<TokenResult | { code: string }>('token.get')
      const token = 'accessToken' in answer ? answer : null
      const { configuration } = status.daemon
      const { wallMs } = clock.now()
      return {
        state: status.state,
        token: token === null ? 'none' : (claimsOf(token.accessToken).name ?? token.accessToken),
        left: token && Date.parse(token.expiresAt) - wallMs,
        stale: token && token.stale,
        requests: service.requests,
        'asked as': service.askedAs,
        next: status.nextAttemptAt === null ? 'never' : Date.parse(status.nextAttemptAt) - wallMs,
        failure: status.failure?.reason ?? 'none',
        detail: status.failure?.detail ?? 'none',
        expiry: token?.expirySource ?? 'none',
        'refused by': token?.refusedBy?.join(' ') ?? 'none',
        attempts: status.failure?.attempts ?? 0,
        alert: status.alert?.reason ?? 'none',
        'alert log': alive().log.lines().flatMap(alertWords).join(', '),
        systemd: alive().notifications.join(', '),
        share: status.share?.state ?? 'none',
        configuration: configuration.state,
        problem: (configuration.problem ?? 'none').replaceAll(`${directory}/`, ''),
      }
    },
    /** The same in the daemon's own words. */
    ask,
    nowMs: () => clock.now().wallMs,
    serviceNowMs: service.nowMs,
    directory,
    /** The text of a file that the daemon wrote, by its path in the directories; '' where there is none. */
    file: (path: string): string => textOf(join(directory, path)) ?? '',
    isFull: (): boolean => full !== 'none',
    /** All that was logged, by process. Records are written when the daemon ends, at the latest. */
    logged: (): string[] => logs.map((log) => log.lines().join('\n')),
    end: async (): Promise<void> => {
      if (running !== null) await stop()
      endWatching()
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

/** The word of a step and its value. */
export function partsOf(step: Step): readonly [word: string, value?: unknown] {
  return typeof step === 'string' ? [step] : Object.entries(step)[0]!
}

/** The service of a story, whose answers are said by the word. */
function createService(clock: () => ReturnType<typeof createFakeClock>) {
  const answers = new Map<string, ServiceAnswer>([['', { jwt: 'A', life: '1h' }]])
  let lastToken = ''

  function tokenOf({ again, opaque, jwt = '', life = '1h', issued = '0s', without }: ServiceAnswer): string {
    if (again === true) return lastToken
    const iat = (service.nowMs() - durationMs(issued)) / 1_000
    const claims = { exp: iat + durationMs(life) / 1_000, name: jwt }
    lastToken = opaque ?? jwtOf(without?.includes('iat') === true ? claims : { iat, ...claims })
    service.tokens.set(opaque ?? jwt, lastToken)
    return lastToken
  }

  function responseOf(answer: ServiceAnswer) {
    const { status, without, detail, body, 'Retry-After': retryAfter } = answer
    const hasDate = without?.includes('Date') !== true
    const headers = {
      ...(hasDate && { date: new Date(service.nowMs()).toUTCString() }),
      ...(retryAfter !== undefined && { 'retry-after': String(retryAfter) }),
    }
    const accessToken = status === undefined ? tokenOf(answer) : undefined
    const text = JSON.stringify({ accessToken, detail, ...body })
    return { status: status ?? 200, headers, body: Buffer.from(text) }
  }

  const service = {
    /** The texts of its tokens by their names. */
    tokens: new Map<string, string>(),
    requests: 0,
    /** Credentials and service of the last request. */
    askedAs: 'none',
    /** Its clock is right: the host's, and all that was taken from that. */
    aheadMs: 0,
    nowMs: (): number => clock().now().wallMs + service.aheadMs,
    answer: (next: ServiceAnswer): void => {
      const unknown = Object.keys(next).filter((word) => !ANSWER_WORDS.includes(word))
      if (unknown.length > 0) throw new Error(`Unknown words of the service: ${unknown.join(', ')}`)
      if (next.to === undefined) answers.clear()
      answers.set(next.to ?? '', next)
    },
    createFetchToken: ({ service: described, pair, secrets }: FetchTokenOptions): FetchToken => {
      return async (signal, { beforeRequest }) => {
        await beforeRequest()
        if (signal.aborted) return GIVEN_UP
        service.requests += 1
        if (service.requests > MAX_REQUESTS) throw new Error('The service is asked without end')
        const name = pair.apiKey!.reveal().replace('key-of-', '')
        service.askedAs = `${name} at ${new URL(described.tokenUrl).hostname.replace('.example', '')}`
        const answer = answers.get(name) ?? answers.get('') ?? { status: 503 }
        const waitMs = answer.hangs === true ? Infinity : durationMs(answer.after ?? '0s')
        if (waitMs > 0) await clock().sleep(waitMs, signal)
        if (signal.aborted) return GIVEN_UP
        if (answer.silent !== undefined)
          return { kind: 'transient', reason: answer.silent, detail: 'No answer' }
        const { wallMs } = clock().now()
        return outcomeOf(responseOf(answer), { service: described, pair, wallMs, secrets: secrets() })
      }
    },
  }
  return service
}

type Environment = Parameters<typeof createDaemon>[1]

/** Starts the daemon of this runtime directory; resolves once it can be asked. */
async function startIn(
  runtimeDirectory: string,
  environment: Pick<Environment, 'load' | 'clock' | 'random' | 'createFetchToken'>,
) {
  const stopping = new AbortController()
  const log = createMemoryStream()
  const notifications: string[] = []
  const signals = { reload: (): void => undefined, refresh: (): void => undefined }
  const daemon = await createDaemon(await environment.load(), {
    ...environment,
    env: { NOTIFY_SOCKET: '/run/systemd/notify' },
    stderr: log,
    inherited: { ipc: [], http: [], metrics: [] },
    stop: stopping.signal,
    sendDatagram: (_path, text) => {
      for (const [, word = ''] of String(text).matchAll(/^(READY|RELOADING|STOPPING)=1$/gm))
        notifications.push(word)
    },
  })
  const ended = daemon.run({
    onReload: (listener) => (signals.reload = listener),
    onRefresh: (listener) => (signals.refresh = listener),
  })
  const listening = untilListening(join(runtimeDirectory, 'ipc.sock'))
  await Promise.race([listening, ended.then(() => Promise.reject(new Error('The daemon has ended')))])
  return {
    ended,
    log,
    notifications,
    /** SIGHUP. */
    reload: () => signals.reload(),
    /** SIGUSR2. */
    refresh: () => signals.refresh(),
    end: async (): Promise<void> => {
      stopping.abort()
      await ended
      await daemon.close()
    },
  }
}

async function untilListening(path: string): Promise<void> {
  for (;;) {
    try {
      return void (await connectRaw(path)).socket.destroy()
    } catch {
      await turn()
    }
  }
}

function alertWords(line: string): string[] {
  const { event, reminder } = JSON.parse(line) as { event: string; reminder?: number }
  if (event === 'alert-resolved') return ['resolved']
  if (event !== 'alert') return []
  return [reminder === undefined ? 'alert' : 'reminder']
}

/** The claims of a token; none: it is opaque. */
export function claimsOf(token: string): { exp?: number; name?: string } {
  const [, payload = ''] = token.split('.')
  return JSON.parse(Buffer.from(payload, 'base64url').toString() || '{}') as object
}

/** Milliseconds of "1h", "+1h" or "-1h". Throws where it is no duration: a story must not be misread. */
export function durationMs(text: string): number {
  const ms = parseDuration(text.replace(/^[+-]/, ''))
  if (ms === undefined) throw new Error(`"${text}" is no duration`)
  return text.startsWith('-') ? -ms : ms
}
