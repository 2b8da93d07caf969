// Every command's help, the completions, and what is wrong on a command line.
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { commands } from '../../src/commands/specs.ts'
import { lacks } from '../support/lacks.ts'
import { runCli } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'

test('--help works everywhere; that of the program has every command, and the exit statuses', async () => {
  const { status, stdout } = await runCli(['--help'])
  expect(status).toBe(0)
  expect(stdout.replaceAll('\n', ' ')).toMatch(/Exit status: 0 .*; 64 .*; 69 .*; 70 .*; 75 .*; 77 .*; 78 /)
  for (const name of Object.keys(commands)) {
    expect(stdout).toMatch(new RegExp(`^  ${name} +\\S`, 'm'))
    expect((await runCli([name, '--help'])).stdout).toMatch(new RegExp(`^Usage: kyc-tokend ${name}\\b`))
  }
  expect(await runCli(['token', '--wait', '3s', '--help'])).toEqual(await runCli(['token', '-h']))
  // Without a command it is a usage error.
  expect(await runCli([])).toMatchObject({ status: 64, stdout })
})

test('--version names the versions of package.json, of Node and of OpenSSL', async () => {
  const { version } = (await import('../../package.json', { with: { type: 'json' } })).default
  const { node, openssl } = process.versions
  const stdout = `kyc-tokend ${version} (Node ${node}, OpenSSL ${openssl})\n`
  expect(await runCli(['--version'])).toMatchObject({ status: 0, stdout })
})

test.skipIf(lacks('bash'))('bash completes commands, options of a command, and else files', async () => {
  const path = join(await tempDirectory(), 'kyc-tokend.bash')
  writeFileSync(path, (await runCli(['completions'])).stdout)
  const offersOf = (...words: string[]): string => {
    const script = `set -eu; source "$0"; complete -p kyc-tokend >&2; COMP_WORDS=("$@")
      COMP_CWORD=$(($# - 1)); _kyc_tokend; echo "\${COMPREPLY[@]}"`
    const given = ['-c', script, path, 'kyc-tokend', ...words]
    const { stdout, stderr } = spawnSync('bash', given, { encoding: 'utf8' })
    expect(stderr).toBe('complete -o default -F _kyc_tokend kyc-tokend\n')
    return stdout.trim()
  }
  expect(offersOf('')).toBe([...Object.keys(commands), '--help', '--version'].join(' '))
  expect(offersOf('st')).toBe('status')
  expect(offersOf('status', '--')).toBe('--json --socket --account --help')
  expect(offersOf('check', '--config', '')).toBe('')
})

const SECRET = 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl'
test.each([
  'tokn',
  '--versoin',
  SECRET,
  `token ${SECRET}`,
  `token --${SECRET}`,
  'token --constructor',
  'token --format',
  `token --format ${SECRET}`,
  'token --wait=-1s',
  'token --min-valid 25h',
  'run --config ',
  'status --json=yes',
  'sandbox --port 65536',
  'sandbox --token-lifetime 999ms',
  'exec',
  'exec --env 1A true',
  `reject ${SECRET}`,
  `reject -- -${SECRET}`,
])('`%s` is a usage error of one sentence, which does not echo what may be a token', async (words) => {
  const { status, stdout, stderr } = await runCli(words.split(' '))
  expect({ status, stdout }).toEqual({ status: 64, stdout: '' })
  expect(stderr).toMatch(/^[^\n]+\n$/)
  expect(stderr).not.toContain(SECRET.slice(4, 20))
})
