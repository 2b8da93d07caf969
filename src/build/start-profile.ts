// The functions that a start of the daemon calls, found by starting it: the code caches hold these and no others.
//
// The code of the others, two fifths, would only be read at each start, and stay in memory.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { TokenClient } from '../client/index.ts'
import { createSystemClock } from '../lib/clock.ts'
import { createSandbox } from '../sandbox/sandbox.ts'
import { writeSandboxConfig } from '../sandbox/sandbox-config.ts'

/** Ends of functions in the text of a file, as V8 counts its characters, in ascending order. */
export type StartProfile = Readonly<Record<string, readonly number[]>>

/** Functions that one of three profiles calls by chance are left out: the same sources give the same bytes. */
export async function profileStart(bundle: string): Promise<StartProfile> {
  const attempts = [1, 2, 3].map(async () => profileOnce(bundle))
  // Each ends its own daemon, also where another one fails: the build waits for all.
  await Promise.allSettled(attempts)
  const profiles = await Promise.all(attempts)
  return Object.fromEntries(
    Object.keys(profiles[0] ?? {}).map((file) => {
      const calledIn = (end: number): number => profiles.filter((called) => called[file]?.has(end)).length
      const ends = new Set(profiles.flatMap((called) => [...(called[file] ?? [])]))
      return [file, [...ends].filter((end) => calledIn(end) > 1).toSorted((a, b) => a - b)]
    }),
  )
}

/** Ends of functions, by file. */
type Called = Readonly<Record<string, ReadonlySet<number>>>

/** Starts the daemon of this bundle twice, without a kept token and with one, and asks it for the token. */
async function profileOnce(bundle: string): Promise<Called> {
  const directory = mkdtempSync(join(tmpdir(), 'kyc-tokend-build-'))
  const stop = new AbortController()
  try {
    const clock = createSystemClock()
    const sandbox = await createSandbox({ port: 0, scenario: 'ok', tokenLifetimeMs: 3_600_000, clock })
    const serving = sandbox.run(stop.signal)
    const config = await writeSandboxConfig(directory, { url: sandbox.url, logLevel: 'info' })
    for (const event of ['token-obtained', 'started']) await startOnce(bundle, { directory, config, event })
    stop.abort()
    await serving
    return calledFunctions(directory)
  } finally {
    stop.abort()
    rmSync(directory, { recursive: true, force: true })
  }
}

/** Waits for an event of the log before it asks, so that each build calls the same functions. */
async function startOnce(
  bundle: string,
  { directory, config, event }: { directory: string; config: string; event: string },
): Promise<void> {
  const socketPath = join(directory, 'ipc.sock')
  const start = (...words: string[]) =>
    spawn(process.execPath, [join(bundle, 'cli.cjs'), ...words], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { PATH: process.env['PATH'], NODE_V8_COVERAGE: directory },
    })
  const daemon = start('run', '--config', config)
  const ended = once(daemon, 'exit')
  const client = new TokenClient({ socketPath })
  try {
    await logged(event, daemon.stderr)
    await client.get()
    await once(start('token', '--socket', socketPath), 'exit')
    // A file that was written less than a second ago is read, an older one only looked at.
    await sleep(1_500)
  } finally {
    client.close()
    daemon.kill()
    await ended
  }
}

async function logged(event: string, log: Readable): Promise<void> {
  let text = ''
  await new Promise<void>((resolve, reject) => {
    log.on('data', (chunk) => {
      text += String(chunk)
      if (text.includes(`"event":"${event}"`)) resolve()
    })
    log.once('end', () => reject(new Error(`The daemon has ended before ${event}: ${text}`)))
  })
}

/** As Node's coverage reports them (NODE_V8_COVERAGE). */
interface Coverage {
  readonly result: readonly {
    readonly url: string
    readonly functions: readonly { readonly ranges: readonly { endOffset: number; count: number }[] }[]
  }[]
}

function calledFunctions(directory: string): Called {
  const called = new Map<string, Set<number>>()
  for (const file of globSync('coverage-*.json', { cwd: directory })) {
    const { result } = JSON.parse(readFileSync(join(directory, file), 'utf8')) as Coverage
    for (const { url, functions } of result.filter((script) => script.url.startsWith('file:'))) {
      const ends = called.get(basename(url)) ?? new Set()
      called.set(basename(url), ends)
      const ran = functions.flatMap(({ ranges: [whole] }) => (whole && whole.count > 0 ? [whole] : []))
      for (const { endOffset } of ran) ends.add(endOffset)
    }
  }
  return Object.fromEntries(called)
}
