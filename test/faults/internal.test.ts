// A fault of the daemon itself ends it as a crash does: with 70, without a stack trace, and with nothing forgotten.
import { statSync } from 'node:fs'
import { chmod, chown, cp, mkdir, readFile, symlink } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { PROGRAM, startDaemon } from '../support/daemon.ts'
import { lacks } from '../support/lacks.ts'
import { serviceOf, statusOf } from '../support/outside.ts'
import { accountInactive } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const isRoot = process.getuid?.() === 0
/** Fails where the host's name is read a second after the start, when all components run. */
const BREAKING = `const os = process.getBuiltinModule('os'); const { hostname } = os;
  os.hostname = () => { if (performance.now() > 950) throw new Error('no name'); return hostname() }`
const WITHOUT_NAME = `data:text/javascript,${encodeURIComponent(BREAKING)}`
/** Writes the limit of core files to stderr whenever the configuration is opened. */
const SHOWING = `const fs = process.getBuiltinModule('fs'); const { openSync } = fs;
  fs.openSync = (path, ...rest) => {
    if (String(path).endsWith('.json')) {
      fs.writeSync(2, fs.readFileSync('/proc/self/limits', 'utf8'))
    }
    return openSync(path, ...rest)
  }`
const SHOWING_LIMIT = `data:text/javascript,${encodeURIComponent(SHOWING)}`

test('an internal fault ends the daemon with 70 and one sentence, and the next start takes it for a crash', async () => {
  const directory = await tempDirectory()
  const service = await serviceOf(accountInactive)
  const options = { directory, baseUrl: service.url }
  const refused = startDaemon(options)
  await refused.logged('alert')
  await refused.end('SIGKILL')
  const [node, program] = PROGRAM
  const broken = startDaemon({ ...options, program: [node, '--import', WITHOUT_NAME, program] })
  expect(await broken.ended()).toBe(70)
  const words = broken.stderr().split('\n')
  expect(words.filter((line) => !line.startsWith('{'))).toEqual([
    'kyc-tokend failed, and the fault is its own (no name): please report it.',
    '',
  ])
  const restarted = startDaemon(options)
  await restarted.listening()
  expect(await statusOf(restarted)).toMatchObject({ state: 'refused', nextAttemptAt: null })
  expect(service.requests).toHaveLength(1)
})

test('core dumps are forbidden before the configuration is opened', async () => {
  const directory = await tempDirectory()
  const { url: baseUrl } = await serviceOf()
  const [node, program] = PROGRAM
  const unlimited = ['sh', '-c', 'ulimit -c unlimited; exec "$@"', 'sh']
  const daemon = startDaemon({
    directory,
    baseUrl,
    program: [...unlimited, node, '--import', SHOWING_LIMIT, program],
  })
  await daemon.listening()
  const shown = daemon.stderr().match(/^Max core file size.*$/gm)
  expect(shown).not.toBeNull()
  for (const line of shown ?? []) expect(line).toMatch(/size +0 +0 /)
})

test.skipIf(!isRoot || lacks('prlimit', 'setpriv'))(
  'a crash leaves no core file, and the same user sees no memory and no environment',
  async () => {
    const directory = await tempDirectory()
    const service = await serviceOf()
    const uid = 65_533
    await mkdir(join(directory, 'run'))
    for (const path of [directory, join(directory, 'run')]) await chown(path, uid, uid)
    await chmod(directory, 0o755)
    // The bundle of the tests is its maker's alone.
    const [node, program] = PROGRAM
    const own = join(directory, 'dist')
    await cp(dirname(program), own, { recursive: true })
    await chmod(own, 0o755)
    await symlink(join(dirname(program), '..', '..'), join(directory, 'node_modules'))
    const owned = ['sh', '-c', `chown ${uid} "$5"; exec setpriv --reuid ${uid} --clear-groups "$@"`, 'sh']
    const limited = ['prlimit', '--core=unlimited', ...owned, node, join(own, basename(program))]
    const daemon = startDaemon({ directory, baseUrl: service.url, program: limited })
    await daemon.listening()
    const { pid } = daemon.process
    expect(await readFile(`/proc/${pid}/limits`, 'utf8')).toMatch(/^Max core file size +0 +0 /m)
    // Of a process that may be looked into they are its user's.
    expect(statSync(`/proc/${pid}/environ`).uid).toBe(0)
    expect(await readFile(`/proc/${pid}/status`, 'utf8')).toContain(`Uid:\t${uid}`)
  },
)
