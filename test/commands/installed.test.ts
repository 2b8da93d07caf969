// The command as the package installs it: a shell script that runs one of two programs.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { PROGRAM } from '../support/daemon.ts'
import { startProgram, type Ended } from '../support/run-cli.ts'
import { granting } from '../support/service.ts'

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

const inShell = (script: string): Promise<Ended> => startProgram(['sh', '-c', script, command]).ended

test("the caller's settings for Node change nothing", async () => {
  for (const args of [['--version'], ['status', '--help'], ['check', '--help']]) {
    const ended = await startProgram([command, ...args], { env: FOREIGN }).ended
    expect(ended).toMatchObject({ status: 0, stderr: '' })
  }
})

test('and the command of exec has them', async () => {
  const { daemon } = await commandWorld({ answer: granting(hourToken()) })
  const script = 'env | grep -E "^(NODE_(OPTIONS|DEBUG|V8_COVERAGE)|KYC_TOKEND_CALLER)" | sort'
  const words = ['exec', '--socket', daemon.ipcPath, '--', 'sh', '-c', script]
  const { stdout, stderr } = await startProgram([command, ...words], { env: FOREIGN }).ended
  expect({ stdout, stderr }).toEqual({
    stdout: `NODE_DEBUG=net\nNODE_OPTIONS=--no-such-option\nNODE_V8_COVERAGE=/nowhere/it\n`,
    stderr: '',
  })
})

test('where it may have 20 files open, of which Node would crash, it says so; 32 do', async () => {
  const { daemon } = await commandWorld({ answer: granting(hourToken()) })
  for (const name of ['status', 'token', 'check']) {
    const { status, stdout, stderr } = await inShell(`ulimit -n 20; exec "$0" ${name}`)
    expect({ status, stdout }).toEqual({ status: 75, stdout: '' })
    expect(stderr).toMatch(/^kyc-tokend needs 32 open files, .* \(ulimit -n\): raise that limit, .*\n$/)
  }
  const given = await inShell(`ulimit -n 32; exec "$0" token --socket ${daemon.ipcPath}`)
  expect(given).toMatchObject({ status: 0, stdout: expect.stringMatching(/^ey\S+\n$/) as string })
})

test.each([
  ['closed', '>&-'],
  ['full', '>/dev/full'],
])('no command whose output is %s ends with 0', async (_, redirection) => {
  const { daemon } = await commandWorld({ answer: granting(hourToken()) })
  const socket = `--socket ${daemon.ipcPath}`
  const names = ['token', 'status', 'watch', 'refresh', 'reject'].map((name) => `${name} ${socket}`)
  for (const words of ['--help', '--version', ...names]) {
    const { status, stderr } = await inShell(`exec "$0" ${words} ${redirection}`)
    expect({ words, status }).toEqual({ words, status: 70 })
    expect(stderr).toMatch(/^The output cannot be written \(.*\)\.\n$/)
  }
})
