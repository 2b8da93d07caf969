// A reader of the log that stops does the daemon no harm. One that goes away is in report/log.
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { PROGRAM, textOf, tokenFile, type Daemon } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { httpAsk, tokenOf } from '../support/outside.ts'
import { expectUntil } from '../support/until.ts'

/** Hundreds of records are formatted and written, on a machine that does other things, too. */
const BUSY = { withinMs: 60_000 }

const world = useDaemons()

/** A daemon whose log goes through a pipe to a reader that the test can stop and end. */
async function startPiped(): Promise<{ daemon: Daemon; reader: ChildProcess; read: () => string }> {
  const [pipe, out] = ['pipe', 'out'].map((name) => join(world.directory, name)) as [string, string]
  expect(spawnSync('mkfifo', [pipe]).status).toBe(0)
  const reader = spawn('sh', ['-c', 'exec cat "$0" > "$1"', pipe, out], { stdio: 'ignore' })
  onTestFinished(() => void reader.kill('SIGKILL'))
  const program = ['sh', '-c', `exec "$@" 2> '${pipe}'`, 'sh', ...PROGRAM]
  const daemon = world.start({ tokenFiles: widelyReadable }, { program })
  const read = (): string => textOf(out) ?? ''
  await expectUntil('a record of the start', () => read().includes('"started"'))
  return { daemon, reader, read }
}

/** Each of them is worth a warning of some length at each reload. */
const widelyReadable = [
  { path: 'token' },
  ...Array.from({ length: 40 }, (_, index) => ({ path: `${index}-${'x'.repeat(200)}`, mode: '0644' })),
]

/** Has the daemon log more than anybody has read, until it must lose some. */
async function overfill(daemon: Daemon): Promise<void> {
  await expectUntil(
    'records to be lost',
    async () => {
      daemon.process.kill('SIGHUP')
      const { body } = await httpAsk(daemon, '/metrics')
      return Number(/^kyc_tokend_log_records_lost_total (\d+)$/m.exec(body)?.[1]) > 0
    },
    BUSY,
  )
}

test('a reader that stops reading holds up no client, and learns how much it missed', async () => {
  const { daemon, reader, read } = await startPiped()
  const { accessToken } = await tokenOf(daemon)
  reader.kill('SIGSTOP')
  await overfill(daemon)
  expect((await tokenOf(daemon)).accessToken).toBe(accessToken)
  daemon.process.kill('SIGUSR2')
  await expectUntil('the token file', () => ![undefined, accessToken].includes(tokenFile(daemon)), BUSY)
  reader.kill('SIGCONT')
  // The records kept for a reader are bounded: the rest is lost, and counted.
  const loss = await expectUntil(
    'the record of the loss',
    () => /"log-records-lost","dropped":(\d+)/.exec(read())?.[1],
    BUSY,
  )
  expect(Number(loss)).toBeGreaterThan(0)
  expect(await daemon.end()).toBe(0)
})
