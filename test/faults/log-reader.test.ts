// A reader of the log that stops does the daemon no harm. One that goes away is in report/log.
import { spawn, spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { PROGRAM, textOf, tokenFile } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { httpAsk, tokenOf } from '../support/outside.ts'
import { expectUntil } from '../support/until.ts'

/** Hundreds of records are formatted and written, on a machine that does other things, too. */
const BUSY = { withinMs: 60_000 }

const world = useDaemons()

test('a reader that stops reading holds up no client, and learns how much it missed', async () => {
  const [pipe, out] = [join(world.directory, 'pipe'), join(world.directory, 'out')]
  expect(spawnSync('mkfifo', [pipe]).status).toBe(0)
  const reader = spawn('sh', ['-c', 'exec cat "$0" > "$1"', pipe, out], { stdio: 'ignore' })
  onTestFinished(() => void reader.kill('SIGKILL'))
  const program = ['sh', '-c', `exec "$@" 2> '${pipe}'`, 'sh', ...PROGRAM]
  // Each of them is worth a warning of some length at each reload.
  const readable = Array.from({ length: 40 }, (_, index) => ({
    path: `${index}-${'x'.repeat(200)}`,
    mode: '0644',
  }))
  const daemon = world.start({ tokenFiles: [{ path: 'token' }, ...readable] }, { program })
  const read = (): string => textOf(out) ?? ''
  await expectUntil('a record of the start', () => read().includes('"started"'))
  const { accessToken } = await tokenOf(daemon)
  reader.kill('SIGSTOP')
  const isLosing = async (): Promise<boolean> => {
    daemon.process.kill('SIGHUP')
    const { body } = await httpAsk(daemon, '/metrics')
    return Number(/^kyc_tokend_log_records_lost_total (\d+)$/m.exec(body)?.[1]) > 0
  }
  await expectUntil('records to be lost', isLosing, BUSY)
  expect((await tokenOf(daemon)).accessToken).toBe(accessToken)
  daemon.process.kill('SIGUSR2')
  await expectUntil('the token file', () => ![undefined, accessToken].includes(tokenFile(daemon)), BUSY)
  reader.kill('SIGCONT')
  const loss = /"log-records-lost","dropped":[1-9]/
  await expectUntil('the record of the loss', () => loss.test(read()), BUSY)
  expect(await daemon.end()).toBe(0)
})
