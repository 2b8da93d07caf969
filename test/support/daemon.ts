// The real program as a process of its own, in a directory of its own, for tests that look at it from outside.
import { spawn, type ChildProcessByStdio } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { onTestFinished } from 'vitest'
import { expectUntil } from './until.ts'

/** The program as it is shipped, bundled for this run of the tests (bundled-program.ts). */
export const PROGRAM = [process.execPath, process.env['KYC_TOKEND_TEST_PROGRAM'] ?? ''] as const

export interface LogLine {
  readonly level: string
  readonly message: string
  readonly event: string
  readonly [field: string]: unknown
}
export interface Daemon {
  readonly process: ChildProcessByStdio<null, null, Readable>
  readonly directory: string
  readonly configFile: string
  readonly ipcPath: string
  readonly httpPath: string
  /** The records that it has logged so far. */
  log(): readonly LogLine[]
  /** All of stderr so far, as it came. */
  stderr(): string
  /** Waits until a record of this event is there. */
  logged(event: string): Promise<LogLine>
  /** Waits until both sockets answer. */
  listening(): Promise<void>
  /** Writes another configuration; the daemon gets no signal. */
  configure(config: object): void
  /** Ends it with this signal and waits for that; gives the exit status, or the signal that killed it. */
  end(signal?: NodeJS.Signals): Promise<number | NodeJS.Signals>
  /** Waits until it has ended by itself. */
  ended(): Promise<number | NodeJS.Signals>
}

export interface DaemonOptions {
  /** A directory of the test's, in which everything lies; kept for the next daemon. */
  readonly directory: string
  /** Beside `baseUrl` and the directories. */
  readonly config?: object
  readonly baseUrl: string
  readonly env?: NodeJS.ProcessEnv
  /** The command line, instead of PROGRAM. */
  readonly program?: readonly string[]
  readonly uid?: number
  readonly gid?: number
}

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
export function startDaemon(options: DaemonOptions): Daemon {
  const { directory, env = {}, program = PROGRAM, uid, gid } = options
  const configFile = join(directory, 'kyc-tokend.config.json')
  const runtimeDirectory = join(directory, 'run')
  mkdirSync(directory, { recursive: true })
  const configure = (config: object): void => {
    writeFileSync(configFile, JSON.stringify(config), { mode: 0o600 })
  }
  configure(configOf(options))
  const [command = '', ...words] = program
  const child = spawn(command, [...words, 'run', '--config', configFile], {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { PATH: process.env['PATH'], ...env },
    ...(uid === undefined ? {} : { uid }),
    ...(gid === undefined ? {} : { gid }),
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  let text = ''
  let parsed = 0
  const records: LogLine[] = []
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk
  })
  const exit = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>
  const ended = async (): Promise<number | NodeJS.Signals> => {
    const [code, signal] = await exit
    return code ?? signal ?? -1
  }
  const log = (): LogLine[] => {
    const end = text.lastIndexOf('\n') + 1
    for (const line of text.slice(parsed, end).split('\n'))
      if (line.startsWith('{') && line.endsWith('}')) records.push(JSON.parse(line) as LogLine)
    parsed = end
    return records
  }
  return {
    process: child,
    directory,
    configFile,
    ipcPath: join(runtimeDirectory, 'ipc.sock'),
    httpPath: join(runtimeDirectory, 'http.sock'),
    log,
    stderr: () => text,
    logged: (event) => expectUntil(`a record of ${event}`, () => log().find((line) => line.event === event)),
    async listening() {
      const isStarted = () => {
        if (child.exitCode !== null) throw new Error(`The daemon has ended (${child.exitCode}): ${text}`)
        return log().find((line) => line.event === 'started')
      }
      await expectUntil('a record of the start', isStarted, { withinMs: 60_000 })
    },
    configure,
    async end(signal = 'SIGTERM') {
      child.kill(signal)
      return ended()
    },
    ended,
  }
}

/** The token file of a daemon, or undefined where there is none. */
export function tokenFile({ directory }: Daemon): string | undefined {
  try {
    return readFileSync(join(directory, 'run', 'token'), 'utf8')
  } catch {
    // Not there: that is an answer too.
    return undefined
  }
}
