// The real program as a process in a directory of its own, for tests that look at it from outside.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished } from 'vitest'
import { listEntries } from '../manual/manual.ts'
import { brokenByRecords, recordsOfLines } from '../rules/records.ts'
import { expectUntil } from './until.ts'

/** The program as it is shipped, bundled for this run of the tests (bundled-program.ts). */
export const PROGRAM = [process.execPath, process.env['KYC_TOKEND_TEST_PROGRAM'] ?? ''] as const

/** The command line that becomes it, or another, with listening sockets: each `NAME=ADDRESS`, a path or HOST:PORT. */
export function withSockets(
  sockets: readonly string[],
  program: readonly string[] = PROGRAM,
): readonly string[] {
  const script = new URL('launch-with-sockets.py', import.meta.url).pathname
  return ['python3', script, ...sockets, ...program]
}

export interface LogLine {
  readonly level: string
  readonly message: string
  readonly event: string
  readonly [field: string]: unknown
}
export type Daemon = ReturnType<typeof startDaemon>

export interface DaemonOptions {
  /** A directory of the test's, in which everything lies; kept for the next daemon. */
  readonly directory: string
  /** Beside `baseUrl` and the directories. */
  readonly config?: object
  readonly baseUrl: string
  readonly env?: NodeJS.ProcessEnv
  /** The command line, instead of PROGRAM. */
  readonly program?: readonly string[]
  /** A fault of the program itself is what is tested; else it fails the test. */
  readonly hasFault?: boolean
}

/** Each event of the manual with its level: a daemon logs no other. */
const EVENTS = new Set(listEntries('events').map(([event]) => event))

export const credentials = { apiKey: 'test-api-key-0815', apiSecret: 'test-api-secret-4711' }

/** The configuration of a test daemon: everything in its own directory, quick retries. */
export function configOf({ directory, baseUrl, config = {} }: DaemonOptions): object {
  return {
    baseUrl,
    credentials,
    runtimeDirectory: join(directory, 'run'),
    stateDirectory: join(directory, 'state'),
    log: { level: 'debug', format: 'json' },
    ...config,
  }
}

/** Starts the daemon; it is killed when the test ends. */
export function startDaemon(options: DaemonOptions) {
  const { directory, env = {}, program = PROGRAM } = options
  const configFile = join(directory, 'kyc-tokend.config.json')
  const runtimeDirectory = join(directory, 'run')
  mkdirSync(directory, { recursive: true })
  /** Writes another configuration, with this beside the usual; the daemon gets no signal. */
  const configure = (config: object = {}): void => {
    writeFileSync(configFile, JSON.stringify(configOf({ ...options, config })), { mode: 0o600 })
  }
  configure(options.config)
  const [command = '', ...words] = program
  const child = spawn(command, [...words, 'run', '--config', configFile], {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { PATH: process.env['PATH'], ...env },
  })
  onTestFinished(() => {
    child.kill('SIGKILL')
    if (options.hasFault !== true) expect(records('internal-fault')).toEqual([])
    expect(brokenByRecords(recordsOfLines(text))).toEqual([])
    expect(log().filter(({ event, level }) => !EVENTS.has(`${event} (${level})`))).toEqual([])
  })
  let text = ''
  let parsed = 0
  const lines: LogLine[] = []
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk
  })
  const exit = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>
  /** Waits until it has ended by itself; gives the exit status, or the signal that killed it. */
  const ended = async (): Promise<number | NodeJS.Signals> => {
    const [code, signal] = await exit
    return code ?? signal ?? -1
  }
  /** The records that it has logged so far. */
  const log = (): readonly LogLine[] => {
    const end = text.lastIndexOf('\n') + 1
    for (const line of text.slice(parsed, end).split('\n'))
      if (line.startsWith('{') && line.endsWith('}')) lines.push(JSON.parse(line) as LogLine)
    parsed = end
    return lines
  }
  /** Those of these events. */
  const records = (...events: string[]): LogLine[] => log().filter(({ event }) => events.includes(event))
  return {
    process: child,
    directory,
    configFile,
    ipcPath: join(runtimeDirectory, 'ipc.sock'),
    httpPath: join(runtimeDirectory, 'http.sock'),
    log,
    records,
    /** All of stderr so far, as it came. */
    stderr: () => text,
    /** Waits until a record of this event is there. */
    logged: (event: string) => expectUntil(`a record of ${event}`, () => records(event)[0]),
    /** Waits until both sockets answer. */
    async listening(): Promise<void> {
      const isStarted = () => {
        if (child.exitCode !== null) throw new Error(`The daemon has ended (${child.exitCode}): ${text}`)
        return records('started')[0]
      }
      await expectUntil('a record of the start', isStarted, { withinMs: 60_000 })
    },
    configure,
    /** The same, and waits until the daemon has said how the reload went. */
    async reload(config: object = {}): Promise<void> {
      const over = (): number => records('reloaded', 'reload-failed').length
      const before = over()
      configure(config)
      child.kill('SIGHUP')
      await expectUntil('the reload', () => over() > before)
    },
    /** Ends it with this signal and waits for that, as `ended` does. */
    async end(signal: NodeJS.Signals = 'SIGTERM') {
      child.kill(signal)
      return ended()
    },
    ended,
  }
}

/** The text of a file, or undefined where it cannot be read. */
export function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    // Not there: that is an answer too.
    return undefined
  }
}

/** The token file of a daemon, or undefined where there is none. */
export function tokenFile({ directory }: Pick<Daemon, 'directory'>): string | undefined {
  return textOf(join(directory, 'run', 'token'))
}

/** The content of alert.json, or undefined where there is none. */
export function alertFile({ directory }: Pick<Daemon, 'directory'>): Record<string, unknown> | undefined {
  return JSON.parse(textOf(join(directory, 'run', 'alert.json')) ?? 'null') ?? undefined
}
