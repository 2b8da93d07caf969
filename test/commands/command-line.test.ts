// Every command's help, and what is wrong on a command line.
import { expect, test } from 'vitest'
import { helpOf } from '../../src/commands/command-line.ts'
import { commands } from '../../src/commands/specs.ts'
import { runCli } from '../support/run-cli.ts'

test('the help names every command with its summary', async () => {
  const { status, stdout, stderr } = await runCli(['--help'])
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  expect(stdout).toMatch(
    /^kyc-tokend fetches [^]+ host\.\n\nUsage: kyc-tokend COMMAND \[OPTION …\]\n\n {2}setup /,
  )
  expect(stdout).toMatch(
    /\n\nkyc-tokend COMMAND --help .* --version prints its version and those of\nNode and OpenSSL\.\n$/,
  )
})

test('without a command, the help is a usage error', async () => {
  const { stdout } = await runCli(['--help'])
  const stderr = 'Say what to do: `kyc-tokend --help` lists the commands.\n'
  expect(await runCli([])).toEqual({ status: 64, signal: null, stdout, stderr })
})

test('the help of a command has usage, summary, exit statuses, and a table of its options', () => {
  const help = (command: string): string =>
    helpOf(
      commands.find(({ name }) => name === command),
      commands,
    )
  expect(help('sandbox')).toBe(`Usage: kyc-tokend sandbox [OPTION …]

Run a stand-in for the service on loopback, to try things and to rehearse outages.

Exit status: 0 success; 64 the command line is wrong; 69 the port is in use, or Node is
too old; 70 an internal error; 77 the port needs root; 78 the configuration is faulty.

  --port N                   Port on 127.0.0.1 [a free one]
  --scenario NAME            How it answers (ok, account-inactive, account-not-found,
                             outage, rate-limited, slow, flaky, html-error, opaque-token,
                             expired-token) [ok]
  --token-lifetime DURATION  Life of its tokens [60s]
  --config PATH              Stand in for the service of this configuration
  --help                     This help

Examples:

  kyc-tokend sandbox --port 8099
  kyc-tokend sandbox --port 8099 --scenario outage --token-lifetime 5m
`)
  expect(help('demo')).toMatch(/^Usage: kyc-tokend demo\n[^]*\nExample:\n\n {2}kyc-tokend demo\n$/)
  expect(help('reject')).toMatch(/^Usage: kyc-tokend reject \[OPTION …\] \[FINGERPRINT\|-\]\n/)
})

test.each([
  ['help', 'token'],
  ['--help', 'token'],
  ['token', '-h'],
  ['token', '--wait', '3s', '--help'],
])('%s %s … gives the help of token too', async (...args) => {
  const expected = await runCli(['token', '--help'])
  expect(await runCli(args)).toEqual(expected)
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

test.each([
  ['tokn', 'There is no command tokn: did you mean token?'],
  ['--versoin', 'There is no option --versoin: did you mean --version?'],
  ['help statsu', 'There is no command statsu: did you mean status?'],
  ['no.word', 'There is no command of this name: `kyc-tokend --help` lists them.'],
  ['token --fromat raw', 'token has no option --fromat: did you mean --format?'],
  ['token --constructor', 'token has no option --constructor: `kyc-tokend token --help` lists them.'],
  ['token --format xml', '--format takes one of raw, header, env, json.'],
  ['token --format', '--format needs a value: --format FORMAT.'],
  ['token --wait --format raw', '--wait needs a value: --wait DURATION.'],
  ['token --wait=-1s', '--wait takes a duration such as 30s or 5m, up to 60s.'],
  ['run --config ', '--config is empty: give it a value, or leave it out.'],
  ['status --json=yes', '--json takes no value.'],
  ['status more', 'status does not take arguments beside its options: see `kyc-tokend status --help`.'],
  ['token --min-valid 25h', '--min-valid takes a duration such as 30s or 5m, up to 24h.'],
  [
    'exec --env A=B x',
    '--env takes the name of a variable: letters, digits and _, and no digit at its beginning.',
  ],
  ['exec', 'exec needs a command: kyc-tokend exec -- CMD …'],
  ['completions tcsh', 'Name the shell: kyc-tokend completions bash.'],
  ['reject aaaa bbbb', 'reject takes one fingerprint, or - for a token on stdin.'],
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
  [['help', SECRET]],
])('what may be a token is not echoed: %j', async (args) => {
  const { status, stdout, stderr } = await runCli(args)
  expect(status).toBe(64)
  expect(stdout + stderr).not.toContain(SECRET.slice(4, 20))
})
