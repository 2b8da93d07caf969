// The real program with the flags of its unit, and clients that flood it.
import { spawn, type ChildProcess } from 'node:child_process'
import { chmodSync, readFileSync } from 'node:fs'
import { onTestFinished } from 'vitest'
import { PROGRAM, startDaemon, type Daemon } from './daemon.ts'
import { freshToken, httpAsk, serviceOf } from './outside.ts'
import { granting } from './service.ts'
import { tempDirectory } from './temp-directory.ts'
import { expectUntil } from './until.ts'

const [node, program] = PROGRAM
const UNIT_FILE = new URL('../../systemd/kyc-tokend@.service', import.meta.url)
const [, UNIT_FLAGS = ''] = /^ExecStart=\S+ (--.*) \S+cli\.cjs/m.exec(readFileSync(UNIT_FILE, 'utf8')) ?? []
const UNIT = [
  'env',
  'MALLOC_ARENA_MAX=1',
  'MALLOC_TRIM_THRESHOLD_=65536',
  node,
  ...UNIT_FLAGS.split(' '),
  program,
]
/** `MemoryMax=` of the unit. */
export const UNIT_MIB = 256

/** A daemon whose tokens have so many bytes, and at whose sockets everybody may connect. */
export async function startUnit(tokenBytes: number): Promise<Daemon> {
  const { url } = await serviceOf(() => granting(freshToken().padEnd(tokenBytes, 'x')))
  const directory = await tempDirectory()
  const config = { log: { level: 'info', format: 'json' }, ipc: { mode: '0666' }, http: { mode: '0666' } }
  const daemon = startDaemon({ directory, baseUrl: url, config, program: UNIT })
  await daemon.listening()
  for (const path of ['', '/run']) chmodSync(`${directory}${path}`, 0o755)
  await expectUntil('a token', async () => (await httpAsk(daemon, '/readyz')).status === 200)
  return daemon
}

/** Starts test/support/flood.mjs with these settings; resolves when all of it is connected. */
export async function flood(settings: object): Promise<ChildProcess> {
  const script = new URL('flood.mjs', import.meta.url).pathname
  const child = spawn(process.execPath, [script, JSON.stringify(settings)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  let text = ''
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
  await expectUntil('the flood', () => text.includes('flooding'))
  return child
}
