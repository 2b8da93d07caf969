// A fault of the daemon itself ends it as a crash does: with 70, and with nothing forgotten.
import { chmodSync, chownSync, mkdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { PROGRAM } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { lacks } from '../support/lacks.ts'
import { statusOf } from '../support/outside.ts'
import { accountInactive } from '../support/service.ts'

const world = useDaemons()
const isRoot = process.getuid?.() === 0
/** Fails where the host's name is logged with an alert, when all components run. */
const BREAKING = `process.getBuiltinModule('os').hostname =
  () => ({ toJSON() { throw new Error('no name') } })`
const WITHOUT_NAME = `data:text/javascript,${encodeURIComponent(BREAKING)}`
/** Writes the limit of core files to stderr whenever the configuration is opened. */
const SHOWING = `const fs = process.getBuiltinModule('fs')
  const files = fs.promises
  const { open } = files
  files.open = (path, ...rest) => {
    if (String(path).endsWith('.json')) {
      fs.writeSync(2, fs.readFileSync('/proc/self/limits', 'utf8'))
    }
    return open(path, ...rest)
  }`
const SHOWING_LIMIT = `data:text/javascript,${encodeURIComponent(SHOWING)}`

test('an internal fault ends the daemon with 70, and the next start takes it for a crash', async () => {
  world.service.answer(accountInactive)
  const refused = world.start()
  await refused.logged('alert')
  await refused.end('SIGKILL')
  const [node, program] = PROGRAM
  const broken = world.start({}, { program: [node, '--import', WITHOUT_NAME, program], hasFault: true })
  expect(await broken.ended()).toBe(70)
  const words = broken.stderr().split('\n')
  const [sentence, ...stack] = words.filter((line) => !line.startsWith('{'))
  expect(sentence).toBe('kyc-tokend failed, and the fault is its own (no name): please report it.')
  expect(stack[0]).toBe('Error: no name')
  expect(stack[1]).toMatch(/^ +at .*toJSON/)
  // Functions have the names that the sources give them.
  expect(stack.join('\n')).toMatch(/^ +at redacted /m)
  const [record] = broken.records('internal-fault')
  expect(record).toMatchObject({ level: 'crit', count: 1 })
  expect(String(record?.['stack']).split('\n')).toEqual(stack.slice(0, -1))
  const restarted = await world.started()
  expect(await statusOf(restarted)).toMatchObject({ state: 'refused', nextAttemptAt: null })
  expect(world.service.requests).toHaveLength(1)
})

test.skipIf(isRoot && lacks('setpriv'))(
  'from before the configuration is opened no crash leaves a core file, and the same user sees no memory',
  async () => {
    const { directory } = world
    const uid = isRoot ? 65_533 : process.getuid?.()
    mkdirSync(join(directory, 'run'))
    chmodSync(directory, 0o755)
    for (const path of [directory, join(directory, 'run')]) chownSync(path, uid!, -1)
    const [node, program] = PROGRAM
    const asUser = isRoot ? `chown ${uid} "$7"; exec setpriv --reuid ${uid} --clear-groups "$@"` : 'exec "$@"'
    const unlimited = ['sh', '-c', `ulimit -c unlimited; ${asUser}`, 'sh']
    const daemon = await world.started(
      {},
      { program: [...unlimited, node, '--import', SHOWING_LIMIT, program] },
    )
    const shown = daemon.stderr().match(/^Max core file size.*$/gm)
    expect(shown).not.toBeNull()
    for (const line of shown ?? []) expect(line).toMatch(/size +0 +0 /)
    // Of a process that may be looked into they are its user's.
    const { pid } = daemon.process
    expect(statSync(`/proc/${pid}/environ`).uid).toBe(0)
    expect(readFileSync(`/proc/${pid}/status`, 'utf8')).toContain(`Uid:\t${uid}`)
  },
)
