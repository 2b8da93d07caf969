// Every command's help, the completions, and what is wrong on a command line.
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { commands } from '../../src/commands/specs.ts'
import { lacks } from '../support/lacks.ts'
import { runCli } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'

test('the help names every command with its summary, and the exit statuses', async () => {
  const { status, stdout, stderr } = await runCli(['--help'])
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  for (const name of Object.keys(commands)) expect(stdout).toMatch(new RegExp(`^  ${name} +\\S`, 'm'))
  expect(stdout.replaceAll('\n', ' ')).toMatch(/Exit status: 0 .*; 64 .*; 69 .*; 70 .*; 75 .*; 77 .*; 78 /)
  // Without a command it is a usage error.
  const sentence = 'Say what to do: `kyc-tokend --help` lists the commands.\n'
  expect(await runCli([])).toEqual({ status: 64, signal: null, stdout, stderr: sentence })
})

test('--help works everywhere', async () => {
  for (const name of Object.keys(commands))
    expect((await runCli([name, '--help'])).stdout).toMatch(new RegExp(`^Usage: kyc-tokend ${name}\\b`))
  const expected = await runCli(['token', '--help'])
  for (const words of [['-h'], ['--wait', '3s', '--help']])
    expect(await runCli(['token', ...words])).toEqual(expected)
})

test('--version names the versions of package.json, of Node and of OpenSSL', async () => {
  const { version } = (await import('../../package.json', { with: { type: 'json' } })).default
  expect(await runCli(['--version'])).toEqual({
    status: 0,
    signal: null,
    stdout: `kyc-tokend ${version} (Node ${process.versions.node}, OpenSSL ${process.versions.openssl})\n`,
    stderr: '',
  })
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

test.each([
  ['tokn', 'There is no command tokn: `kyc-tokend --help` lists them.'],
  ['--versoin', 'There is no option --versoin: `kyc-tokend --help` lists them.'],
  ['no.word', 'There is no command of this name: `kyc-tokend --help` lists them.'],
  ['token --constructor', 'token has no option --constructor: `kyc-tokend token --help` lists them.'],
  ['token --format xml', '--format takes one of raw, header, env, json.'],
  ['token --format', '--format needs a value: --format FORMAT.'],
  ['token --wait --format raw', '--wait needs a value: --wait DURATION.'],
  ['token --wait=-1s', '--wait takes a duration such as 30s or 5m, up to 1 min.'],
  ['run --config ', '--config is empty: give it a value, or leave it out.'],
  ['status --json=yes', '--json takes no value.'],
  ['status more', 'status does not take arguments beside its options: see `kyc-tokend status --help`.'],
  ['token --min-valid 25h', '--min-valid takes a duration such as 30s or 5m, up to 1 d.'],
  ['exec', 'exec needs a command, without "=" in its name: kyc-tokend exec -- CMD …'],
])('`%s` is a usage error of one sentence', async (words, sentence) => {
  const ended = await runCli(words.split(' '))
  expect(ended).toEqual({ status: 64, signal: null, stdout: '', stderr: `${sentence}\n` })
})

const SECRET = 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl'
test.each([
  [[SECRET]],
  [['token', SECRET]],
  [['token', '--format', SECRET]],
  [['token', `--${SECRET}`]],
  [['reject', SECRET]],
  [['reject', '--', `-${SECRET}`]],
])('what may be a token is not echoed: %j', async (args) => {
  const { status, stdout, stderr } = await runCli(args)
  expect(status).toBe(64)
  expect(stdout + stderr).not.toContain(SECRET.slice(4, 20))
})
