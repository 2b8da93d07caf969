import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, existsSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { block } from '../manual/manual.ts'
import { lacks } from '../support/lacks.ts'
import { freePort } from '../support/redis.ts'
import { runProgram, startCli } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

test.skipIf(lacks('curl', 'socat'))(
  'the lines that the demo shows work, and it leaves nothing behind',
  async () => {
    const { child, stdout, stderr, ended } = startCli(['demo'])
    await expectUntil('a first token', () => /event=token-obtained .*generation=1\b/.test(stderr()))
    const directory = / both in (\S+)\.$/m.exec(stdout())?.[1] ?? ''
    for (const name of ['token', 'ipc.sock', 'http.sock'])
      await expectUntil(name, () => existsSync(join(directory, name)))
    /** What the line of this name prints in another terminal, with no Node of its own. */
    const printed = async (name: string): Promise<string> => {
      const line = new RegExp(`^  ${name} +(.*)$`, 'm').exec(stdout())?.[1] ?? ''
      return (await runProgram(['sh', '-c', line], { env: { PATH: '/usr/bin:/bin' } })).stdout
    }
    const file = await printed('the token file')
    expect(file).toMatch(/^[\w.-]+$/)
    expect(await printed('a token to use')).toBe(`${file}\n`)
    const ipc = JSON.parse((await printed('over ipc.sock')).slice(0, -1)) as object
    expect(ipc).toMatchObject({ type: 'token.result', data: { id: '1', accessToken: file } })
    expect(JSON.parse(await printed('over http.sock'))).toMatchObject({ accessToken: file })
    await printed('an inactive account')
    expect((await runProgram([join(directory, 'kyc-tokend'), 'refresh'])).status).toBe(77)
    await expectUntil('the alert', () => /event=alert reason=account-inactive/.test(stderr()))
    child.kill('SIGINT')
    expect((await ended).status).toBe(0)
    expect(existsSync(directory)).toBe(false)
  },
)

test("the commands of the manual lead to a token of a daemon of one's own", async () => {
  const directory = await tempDirectory()
  const uid = process.getuid!() === 0 ? 65_533 : process.getuid!()
  chownSync(directory, uid, uid)
  const script = block('rehearse').code.replaceAll('8099', String(await freePort()))
  const shell: ChildProcess = spawn('sh', ['-euc', script], {
    cwd: directory,
    env: { PATH: process.env['PATH'], HOME: directory, XDG_RUNTIME_DIR: directory },
    uid,
    gid: uid,
    detached: true,
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  onTestFinished(() => void process.kill(-(shell.pid ?? 0), 'SIGKILL'))
  let printed = ''
  shell.stdout?.setEncoding('utf8').on('data', (chunk: string) => (printed += chunk))
  expect(await once(shell, 'exit')).toEqual([0, null])
  await expectUntil('the token', () => /^[\w-]+\.[\w-]+\.[\w-]+$/m.test(printed))
  expect(printed).toMatch(/^Next: \S+ \S+ run$/m)
})
