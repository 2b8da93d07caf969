import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { TokenClient } from '../../src/client/index.ts'
import { daemonWith } from '../support/client-world.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { PROGRAM, type Daemon } from '../support/daemon.ts'
import { startProgram } from '../support/run-cli.ts'
import { tokenFields } from '../support/scripted-daemon.ts'
import { accountInactive, granting, type Answer } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

const tokens = Array.from({ length: 20 }, (_, index) => hourToken(index + 1))
const renewing: Answer = (_, { number }) => granting(tokens[number - 1] ?? '')

/** Runs a shell script with `exec --on-change`; its process group ends with the test. */
function supervise(
  { daemon }: { readonly daemon: { readonly ipcPath: string } },
  { options, script, launcher = [] }: { options: string[]; script: string; launcher?: string[] },
) {
  const words = [...launcher, ...PROGRAM, 'exec', '--socket', daemon.ipcPath, '--min-between', '0s']
  const { child, stdout, stderr, ended } = startProgram([...words, ...options, '--', 'sh', '-c', script])
  const lines = (): string[] => stdout().split('\n').slice(0, -1)
  onTestFinished(async () => {
    for (const group of lines().flatMap((line) => /^pid (\d+)$/.exec(line)?.[1] ?? []))
      spawnSync('kill', ['-KILL', '--', `-${group}`])
    child.kill('SIGKILL')
    await ended
  })
  /** The lines of its output so far. */
  return { child, lines, stderr, ended }
}
type Running = ReturnType<typeof supervise>

function operator(daemon: Daemon): TokenClient {
  const client = new TokenClient({ socketPath: daemon.ipcPath })
  onTestFinished(() => client.close())
  return client
}

const LOOP = 'while :; do sleep 0.05; done'
const REPORT = 'echo "pid $$"; echo "start $KYC_ACCESS_TOKEN"'
const startsOf = ({ lines }: Running): number[] =>
  lines()
    .filter((line) => line.startsWith('start '))
    .map((line) => tokens.indexOf(line.slice('start '.length)) + 1)
const started = (command: Running, count: number): Promise<true> =>
  expectUntil(`start ${count}`, () => startsOf(command).length === count)
/** Or a zombie, whose parent has not heard of it yet. */
const hasEnded = (pid: string): boolean =>
  !/^[^Z]/.test(spawnSync('ps', ['-o', 'stat=', '-p', pid], { encoding: 'utf8' }).stdout)

test('ten quick changes are one restart, with the last token, once the command has stopped', async () => {
  const world = await commandWorld({ answer: renewing })
  const go = join(world.directory, 'go')
  const stop = `echo stopping; until test -e ${go}; do sleep 0.05; done; exit 9`
  const script = `trap '${stop}' TERM; ${REPORT}; ${LOOP}`
  const command = supervise(world, { options: ['--on-change', 'restart', '--stop-timeout', '1h'], script })
  await started(command, 1)
  const client = operator(world.daemon)
  await client.refresh()
  await expectUntil('the stop', () => command.lines().includes('stopping'))
  for (let count = 0; count < 9; count += 1) await client.refresh()
  writeFileSync(go, '')
  await started(command, 2)
  // One more change shows that no other restart was under way.
  await client.refresh()
  await started(command, 3)
  expect(startsOf(command)).toEqual([1, 11, 12])
})

test('between two starts is the time of --min-between, also if the token changes earlier', async () => {
  const world = await commandWorld({ answer: renewing })
  const script = `echo "at $(cut -d' ' -f1 /proc/uptime)"; ${REPORT}; ${LOOP}`
  const options = ['--on-change', 'restart', '--min-between', '5s']
  const command = supervise(world, { options, script })
  await started(command, 1)
  await operator(world.daemon).refresh()
  await started(command, 2)
  const [first = 0, second = 0] = command
    .lines()
    .flatMap((line) => /^at (.*)/.exec(line)?.[1] ?? [])
    .map(Number)
  // The first shell may take a moment to say so.
  expect(second - first).toBeGreaterThan(4)
})

test('with a signal the command runs on, and finds the new token in the file', async () => {
  const world = await commandWorld({
    answer: renewing,
    config: { tokenFiles: [{ path: 'token', format: 'raw' }] },
  })
  const file = join(world.directory, 'run', 'token')
  const script = `${REPORT}; trap 'echo "hup $(cat ${file})"' HUP; echo ready; ${LOOP}`
  const command = supervise(world, { options: ['--on-change', 'HUP'], script })
  await expectUntil('the command', () => command.lines().includes('ready'))
  for (const number of [2, 3]) {
    await operator(world.daemon).refresh()
    await expectUntil('the signal', () => command.lines().includes(`hup ${tokens[number - 1]}`))
  }
  expect(startsOf(command)).toEqual([1])
  expect(command.lines().filter((line) => line.startsWith('hup'))).toHaveLength(2)
})

test('the signal waits until the token files are written', async () => {
  let writtenAt = '2029-12-31T23:59:59.000Z'
  const daemon = await daemonWith(({ type, answer }) => {
    if (type === 'status.get') answer('status.result', { files: [{ path: 'token', ok: true, writtenAt }] })
    else answer('token.result', tokenFields(tokens[0] ?? ''))
  })
  const script = `${REPORT}; trap 'echo hup' HUP; echo ready; ${LOOP}`
  const command = supervise({ daemon: { ipcPath: daemon.path } }, { options: ['--on-change', 'HUP'], script })
  await expectUntil('the command', () => command.lines().includes('ready'))
  await expectUntil('the subscription', () => daemon.asked.some(({ type }) => type === 'token.subscribe'))
  const questions = (): number => daemon.asked.filter(({ type }) => type === 'status.get').length
  daemon.publish('token.result', tokenFields(tokens[1] ?? ''))
  const before = questions()
  await expectUntil('questions for the files', () => questions() > before + 5)
  expect(command.lines()).not.toContain('hup')
  writtenAt = '2030-01-01T00:00:00.001Z'
  await expectUntil('the signal', () => command.lines().includes('hup'))
})

test('a command that does not stop is killed after the stop timeout, with its process group', async () => {
  const world = await commandWorld({ answer: renewing })
  const holdOut = `(trap '' TERM; exec sleep 1000) & echo "worker $!"`
  const script = `${REPORT}; trap 'echo refused' TERM; ${holdOut}; ${LOOP}`
  const command = supervise(world, { options: ['--on-change', 'restart', '--stop-timeout', '1s'], script })
  await expectUntil('the worker', () => command.lines().some((line) => line.startsWith('worker')))
  const worker = command.lines().at(-1)?.split(' ')[1] ?? ''
  await operator(world.daemon).refresh()
  await started(command, 2)
  expect(command.lines()).toContain('refused')
  await expectUntil('the end of the worker', () => hasEnded(worker))
})

test('another stop signal; the workers of the command may end in their own time', async () => {
  const world = await commandWorld({ answer: renewing })
  const go = join(world.directory, 'go')
  // The command ends at once, its worker waits for the file.
  const work = `trap 'until test -e ${go}; do sleep 0.05; done; echo worked; exit' USR2; echo ready`
  const script = `${REPORT}; (${work}; ${LOOP}) & trap 'echo left; exit' USR2; wait`
  const options = ['--on-change', 'restart', '--stop-signal', 'SIGUSR2', '--stop-timeout', '1h']
  const command = supervise(world, { options, script })
  await expectUntil('the worker', () => command.lines().includes('ready'))
  await operator(world.daemon).refresh()
  await expectUntil('the end of the command', () => command.lines().includes('left'))
  writeFileSync(go, '')
  await started(command, 2)
  await expectUntil('the end of the worker', () => command.lines().includes('worked'))
  const lines = command.lines()
  expect(lines.indexOf('worked')).toBeLessThan(lines.indexOf(`start ${tokens[1]}`))
})

test.each([
  ['exit 7', 7],
  ['kill -USR1 $$', 138],
])('a command that ends by itself is not started again: %s', async (script, status) => {
  const world = await commandWorld({ answer: renewing })
  const command = supervise(world, { options: ['--on-change', 'restart'], script: `${REPORT}; ${script}` })
  expect(await command.ended).toMatchObject({ status, signal: null })
  expect(startsOf(command)).toEqual([1])
})

test('signals go to the process group of the command; TERM ends it for good', async () => {
  const world = await commandWorld({ answer: renewing })
  const traps = (who: string): string =>
    ['HUP', 'INT', 'USR1', 'USR2', 'WINCH'].map((name) => `trap 'echo ${who} ${name}' ${name}`).join('; ')
  const end = `trap 'echo bye; sleep 0.2; exit 5' TERM`
  const background = `(${traps('worker')}; echo worker ready; ${LOOP}) &`
  const script = `${REPORT}; ${background} ${traps('command')}; ${end}; echo ready; ${LOOP}`
  const command = supervise(world, { options: ['--on-change', 'restart', '--splay', '1h'], script })
  for (const line of ['ready', 'worker ready']) await expectUntil(line, () => command.lines().includes(line))
  for (const name of ['HUP', 'INT', 'USR1', 'USR2', 'WINCH'] as const) {
    command.child.kill(`SIG${name}`)
    // The shell lets what it starts in the background ignore INT.
    for (const who of name === 'INT' ? ['command'] : ['command', 'worker'])
      await expectUntil(`${name} of the ${who}`, () => command.lines().includes(`${who} ${name}`))
  }
  await operator(world.daemon).refresh()
  command.child.kill('SIGTERM')
  expect(await command.ended).toMatchObject({ status: 5, signal: null })
  expect(command.lines()).toContain('bye')
  expect(startsOf(command)).toEqual([1])
})

test('TERM while it stops keeps the stop timeout', async () => {
  const world = await commandWorld({ answer: renewing })
  const options = ['--on-change', 'restart', '--stop-timeout', '1s']
  const command = supervise(world, { options, script: `trap 'echo stopping' TERM; ${REPORT}; ${LOOP}` })
  await started(command, 1)
  await operator(world.daemon).refresh()
  await expectUntil('the stop', () => command.lines().includes('stopping'))
  command.child.kill('SIGTERM')
  expect(await command.ended).toMatchObject({ status: 137, signal: null })
  expect(startsOf(command)).toEqual([1])
})

test.each([
  ['HUP', [1, 2]],
  ['INT', [1]],
  ['TERM', [1]],
] as const)('after %s while the command stops for a restart come the starts %j', async (name, starts) => {
  const world = await commandWorld({ answer: renewing })
  const go = join(world.directory, 'go')
  const stop = `echo stopping; until test -e ${go}; do sleep 0.05; done; exit 6`
  const script = `trap 'echo int' INT; trap '' HUP; trap '${stop}' TERM; ${REPORT}; ${LOOP}`
  const command = supervise(world, { options: ['--on-change', 'restart', '--stop-timeout', '1h'], script })
  await started(command, 1)
  // One that the command survives before its stop does not end it for good.
  command.child.kill('SIGINT')
  await expectUntil('the signal', () => command.lines().includes('int'))
  await operator(world.daemon).refresh()
  await expectUntil('the stop', () => command.lines().includes('stopping'))
  command.child.kill(`SIG${name}`)
  writeFileSync(go, '')
  if (name === 'HUP') await started(command, 2)
  else expect(await command.ended).toMatchObject({ status: 6, signal: null })
  expect(startsOf(command)).toEqual(starts)
})

test('a signal while it waits for the first token ends it with its status', async () => {
  const world = await commandWorld({ answer: { status: 503 } })
  const options = ['--on-change', 'restart', '--wait', '60s']
  const command = supervise(world, { options, script: REPORT })
  const status = operator(world.daemon)
  await expectUntil('its question', async () => (await status.status()).clients.ipc.connections > 1)
  // USR1 is for the command.
  command.child.kill('SIGUSR1')
  command.child.kill('SIGHUP')
  expect(await command.ended).toMatchObject({ status: 129, signal: null })
  expect(command.lines()).toEqual([])
})

test('the command goes on without the daemon and when the account is refused', async () => {
  const world = await commandWorld({ answer: renewing })
  const script = `${REPORT}; ${LOOP}`
  const command = supervise(world, { options: ['--on-change', 'restart'], script })
  await started(command, 1)
  world.service.answer(accountInactive)
  await operator(world.daemon).refresh()
  await world.daemon.end()
  await expectUntil('a sentence', () => command.stderr().includes('The command keeps'))
  expect(startsOf(command)).toEqual([1])
  world.service.answer(granting(tokens[5] ?? ''))
  const again = await world.again()
  await operator(again).refresh()
  await started(command, 2)
  expect(startsOf(command)).toEqual([1, 6])
})

test.each([
  ['HUP', 64, /LISTEN_FDS/],
  ['none', 0, /^$/],
])('with --on-change %s sockets that systemd handed over end it with %d', async (action, status, message) => {
  const { daemon } = await commandWorld()
  const script = 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@" 3</dev/null'
  const words = ['exec', '--socket', daemon.ipcPath, '--wait', '10s', '--on-change', action, '--', 'true']
  const ended = await startProgram(['sh', '-c', script, ...PROGRAM, ...words]).ended
  expect(ended.status).toBe(status)
  expect(ended.stderr).toMatch(message)
})

const canUnshare = spawnSync('unshare', ['--pid', '--fork', '--mount-proc', 'true']).status === 0
if (!canUnshare) process.stderr.write('exec as PID 1 is not tested: that takes root and unshare(1)\n')

test.skipIf(!canUnshare)('as PID 1 it reaps what its command leaves behind, and TERM ends it', async () => {
  const world = await commandWorld({ answer: renewing })
  const done = join(world.directory, 'done')
  // Each start leaves five processes to PID 1 that end at once.
  const orphan = `sh -c '(sleep 0.1; echo gone >> ${done}) &'`
  const script = `${REPORT}; for i in 1 2 3 4 5; do ${orphan}; done; ${LOOP}`
  const launcher = ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc']
  const options = ['--on-change', 'restart', '--stop-timeout', '1s']
  const command = supervise(world, { options, script, launcher })
  for (const number of [1, 2, 3]) {
    await started(command, number)
    const ended = (): number => (existsSync(done) ? readFileSync(done, 'utf8').split('\n').length - 1 : 0)
    await expectUntil('the orphans', () => ended() >= number * 5)
    await operator(world.daemon).refresh()
  }
  await started(command, 4)
  const init = spawnSync('pgrep', ['-P', String(command.child.pid)], { encoding: 'utf8' }).stdout.trim()
  await expectUntil('no zombie', () => {
    const children = spawnSync('ps', ['--ppid', init, '-o', 'stat='], { encoding: 'utf8' }).stdout
    return children !== '' && !children.includes('Z')
  })
  spawnSync('kill', ['-TERM', init])
  expect(await command.ended).toMatchObject({ status: 143, signal: null })
})

test.skipIf(!canUnshare)(
  'under a PID 1 that reaps nothing it is restarted as soon as its processes have ended',
  async () => {
    const world = await commandWorld({ answer: renewing })
    const script = `trap 'exit' TERM; ${REPORT}; (${LOOP}) & ${LOOP}`
    const noReaper = 'if (fork() == 0) { exec @ARGV } sleep 1 while 1'
    const launcher = ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc', 'perl', '-e', noReaper]
    const options = ['--on-change', 'restart', '--stop-timeout', '1h']
    const command = supervise(world, { options, script, launcher })
    await started(command, 1)
    await operator(world.daemon).refresh()
    await started(command, 2)
    expect(startsOf(command)).toEqual([1, 2])
  },
)
