// The real program with the flags of its unit and, where root may make one, in a cgroup with the unit's memory.
import { spawn, type ChildProcess } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
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

const HIERARCHIES = [
  { parent: '/sys/fs/cgroup/memory', limit: 'memory.limit_in_bytes' },
  { parent: '/sys/fs/cgroup', limit: 'memory.max' },
]
let cgroups = 0

/** A cgroup with so much memory, until the test ends; null where none can be made, which is said. */
function memoryCgroup(mib: number): string | null {
  cgroups += 1
  for (const { parent, limit } of HIERARCHIES) {
    const cgroup = join(parent, `kyc-tokend-test-${process.pid}-${cgroups}`)
    try {
      if (limit === 'memory.max') writeFileSync(join(parent, 'cgroup.subtree_control'), '+memory')
      mkdirSync(cgroup)
      onTestFinished(async () => {
        const isEmpty = () => readFileSync(join(cgroup, 'cgroup.procs'), 'utf8') === ''
        await expectUntil('the end of its processes', isEmpty)
        rmdirSync(cgroup)
      })
      writeFileSync(join(cgroup, limit), String(mib * 1024 * 1024))
      return cgroup
    } catch {
      // Not this hierarchy, or not by this user.
      if (existsSync(cgroup)) rmdirSync(cgroup)
    }
  }
  process.stderr.write('No cgroup for memory can be made here: only the heap is limited\n')
  return null
}

/**
 * A daemon whose tokens have so many bytes, and at whose sockets everybody may connect. `isInCgroup`: with
 * the unit's memory; what the kernel keeps for peers counts, too.
 */
export async function startUnit({ tokenBytes = 16_000, isInCgroup = false } = {}): Promise<Daemon> {
  const { url } = await serviceOf(() => granting(freshToken().padEnd(tokenBytes, 'x')))
  const directory = await tempDirectory()
  const cgroup = isInCgroup ? memoryCgroup(UNIT_MIB) : null
  const entering = cgroup === null ? [] : ['sh', '-c', `echo $$ >${cgroup}/cgroup.procs; exec "$@"`, 'sh']
  const daemon = startDaemon({
    directory,
    baseUrl: url,
    config: { log: { level: 'info', format: 'json' }, ipc: { mode: '0666' }, http: { mode: '0666' } },
    program: [...entering, ...UNIT],
  })
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
