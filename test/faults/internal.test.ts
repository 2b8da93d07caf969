// A fault of the daemon itself ends it as a crash does: with 70, and with nothing forgotten.
import { chmodSync, chownSync, mkdirSync, readFileSync } from 'node:fs'
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
/** Writes to stderr, whenever the configuration is opened, whose its memory is: root's, if nobody may see it. */
const SHOWING = `const fs = process.getBuiltinModule('fs')
  const files = fs.promises
  const { open } = files
  files.open = (path, ...rest) => {
    if (String(path).endsWith('.json')) fs.writeSync(2, 'owner ' + fs.statSync('/proc/self/environ').uid + '\\n')
    return open(path, ...rest)
  }`
const SHOWING_OWNER = `data:text/javascript,${encodeURIComponent(SHOWING)}`

test('an internal fault ends the daemon with 70, and the next start takes it for a crash', async () => {
  world.service.answer(accountInactive)
  const [node, program] = PROGRAM
  const broken = world.start({}, { program: [node, '--import', WITHOUT_NAME, program], hasFault: true })
  expect(await broken.ended()).toBe(70)
  const words = broken
    .stderr()
    .split('\n')
    .filter((line) => !line.startsWith('{'))
  const sentence = 'kyc-tokend failed, and the fault is its own (no name): please report it.'
  // Two parts take the name, at the same time: the first one that failed.
  const [before, first = ''] = words.join('\n').split(`${sentence}\n`)
  expect(before).toBe('')
  const stack = first.trimEnd().split('\n')
  expect(stack[0]).toBe('Error: no name')
  expect(stack[1]).toMatch(/^ +at .*toJSON/)
  // Functions have the names that the sources give them.
  expect(stack.join('\n')).toMatch(/^ +at [A-Za-z.]{5,} \(.*cli\.cjs/m)
  const records = broken.records('internal-fault')
  expect(records.map(({ stack: text }) => String(text).split('\n'))).toContainEqual(stack)
  expect(new Set(records.map(({ level }) => level))).toEqual(new Set(['crit']))
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
    const ofUser = ['sh', '-c', asUser, 'sh']
    const daemon = await world.started({}, { program: [...ofUser, node, '--import', SHOWING_OWNER, program] })
    const shown = daemon.stderr().match(/^owner \d+$/gm)
    expect(new Set(shown)).toEqual(new Set(['owner 0']))
    const { pid } = daemon.process
    expect(readFileSync(`/proc/${pid}/status`, 'utf8')).toContain(`Uid:\t${uid}`)
  },
)
