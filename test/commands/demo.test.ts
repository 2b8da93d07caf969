import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { text as textOf } from 'node:stream/consumers'
import { onTestFinished, expect, test } from 'vitest'
import { block } from '../manual/manual.ts'
import { PROGRAM } from '../support/daemon.ts'
import { listening } from '../support/listening.ts'
import { startCli } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { lacks } from '../support/lacks.ts'
import { expectUntil } from '../support/until.ts'

function startDemo() {
  const { child, stdout, stderr, ended } = startCli(['demo'])
  const interrupt = async (): Promise<number | null> => {
    child.kill('SIGINT')
    return (await ended).status
  }
  return { text: () => stdout() + stderr(), interrupt }
}

test.skipIf(lacks('curl', 'socat'))(
  'the lines that the demo shows work, and it leaves nothing behind',
  async () => {
    const demo = startDemo()
    await expectUntil('a first token', () => /event=token-obtained .*generation=1\b/.test(demo.text()))
    const directory = / both in (\S+)\.$/m.exec(demo.text())?.[1] ?? ''
    for (const name of ['token', 'ipc.sock', 'http.sock'])
      await expectUntil(name, () => existsSync(`${directory}/${name}`))
    const lines = ['the token file', 'over ipc.sock', 'over http.sock'].map(
      (name) => new RegExp(`^  ${name} +(.*)$`, 'm').exec(demo.text())?.[1] ?? '',
    )
    const [file = '', ipc = '', http = ''] = await Promise.all(
      lines.map((line) => textOf(spawn('sh', ['-c', line], { stdio: ['ignore', 'pipe', 'ignore'] }).stdout)),
    )
    expect(file).toMatch(/^[\w.-]+$/)
    expect(JSON.parse(ipc.slice(0, -1))).toMatchObject({
      type: 'token.result',
      data: { id: '1', accessToken: file },
    })
    expect(JSON.parse(http)).toMatchObject({ accessToken: file })
    const line = /^  a token to use +(.*)$/m.exec(demo.text())?.[1] ?? ''
    // In another terminal, with no Node of its own.
    expect(
      spawnSync('sh', ['-c', line], { env: { PATH: '/usr/bin:/bin' }, encoding: 'utf8' }).stdout,
    ).toMatch(/^[\w.-]+\n$/)
    const url = / -d outage (http:\S+\/scenario)$/m.exec(demo.text())?.[1] ?? ''
    await fetch(url, { method: 'PUT', body: 'account-inactive' })
    const events = (): string => demo.text().split("The daemon's log")[1] ?? ''
    await expectUntil('the alert', () => events().includes('account-inactive'))
    expect(await demo.interrupt()).toBe(0)
    expect(existsSync(directory)).toBe(false)
  },
)

test("the commands of the manual lead to a token of a daemon of one's own", async () => {
  const directory = await tempDirectory()
  const uid = process.getuid!() === 0 ? 65_533 : process.getuid!()
  chownSync(directory, uid, uid)
  const probe = createServer()
  const port = await listening(probe)
  probe.close()
  const program = PROGRAM.map((word) => `'${word}'`).join(' ')
  mkdirSync(join(directory, 'bin'))
  writeFileSync(join(directory, 'bin/kyc-tokend'), `#!/bin/sh\nexec ${program} "$@"\n`, { mode: 0o755 })
  let printed = ''
  const type = (script: string): ChildProcess => {
    const shell = spawn('sh', ['-euc', script.replaceAll('8099', String(port))], {
      cwd: directory,
      env: { PATH: `${directory}/bin:${process.env['PATH']}`, HOME: directory, XDG_RUNTIME_DIR: directory },
      uid,
      gid: uid,
      detached: true,
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    onTestFinished(() => void process.kill(-(shell.pid ?? 0), 'SIGKILL'))
    shell.stdout.setEncoding('utf8').on('data', (chunk: string) => (printed += chunk))
    return shell
  }
  expect(await once(type(block('rehearse').code), 'exit')).toEqual([0, null])
  await expectUntil('the token', () => /^[\w-]+\.[\w-]+\.[\w-]+$/m.test(printed))
  expect(printed).toMatch(/^Next: \S+ \S+ run$/m)
})
