// The command as the package installs it: a shell script that runs one of two programs.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
import { commandWorld } from '../support/daemon-world.ts'
import { PROGRAM } from '../support/daemon.ts'
import { runProgram } from '../support/run-cli.ts'

const FOREIGN = { NODE_OPTIONS: '--no-such-option', NODE_DEBUG: 'net', NODE_V8_COVERAGE: '/nowhere/it' }
let command = ''

beforeAll(() => {
  const [node, program] = PROGRAM
  const script = readFileSync(new URL('../../systemd/kyc-tokend.sh', import.meta.url), 'utf8')
  const directory = mkdtempSync(join(tmpdir(), 'kyc-tokend-test-'))
  command = join(directory, 'kyc-tokend')
  const here = script
    .replace('/usr/lib/kyc-tokend/node', node)
    .replace('/usr/lib/kyc-tokend/', `${dirname(program)}/`)
  writeFileSync(command, here, { mode: 0o755 })
  return () => rmSync(directory, { recursive: true })
})

test("the caller's settings for Node change nothing, and the command of exec has them", async () => {
  for (const args of [['--version'], ['status', '--help'], ['check', '--help']])
    expect(await runProgram([command, ...args], { env: FOREIGN })).toMatchObject({ status: 0, stderr: '' })
  const { daemon } = await commandWorld()
  const script = 'env | grep -E "^(NODE_(OPTIONS|DEBUG|V8_COVERAGE)|KYC_TOKEND_CALLER)" | sort'
  const words = ['exec', '--socket', daemon.ipcPath, '--', 'sh', '-c', script]
  expect(await runProgram([command, ...words], { env: FOREIGN })).toMatchObject({
    stdout: 'NODE_DEBUG=net\nNODE_OPTIONS=--no-such-option\nNODE_V8_COVERAGE=/nowhere/it\n',
    stderr: '',
  })
})

test.each([
  ['closed', '>&-'],
  ['full', '>/dev/full'],
])('no command whose output is %s ends with 0', async (_, redirection) => {
  const { daemon } = await commandWorld()
  const socket = `--socket ${daemon.ipcPath}`
  const names = ['token', 'status', 'watch', 'refresh', 'reject'].map((name) => `${name} ${socket}`)
  for (const words of ['--help', '--version', ...names]) {
    const script = `exec "$0" ${words} ${redirection}`
    const { status, stderr } = await runProgram(['sh', '-c', script, command])
    expect(status, words).toBe(70)
    expect(stderr).toMatch(/^The output cannot be written \(.*\)\.\n$/)
  }
})
