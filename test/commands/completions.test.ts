import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { commands } from '../../src/commands/specs.ts'
import { accountNames } from '../../src/lib/account.ts'
import { PROGRAM } from '../support/daemon.ts'
import { runCli } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const [node, program] = PROGRAM
/** The scripts ask the program by its name. */
const programDirectory = mkdtempSync(join(tmpdir(), 'kyc-tokend-test-'))
writeFileSync(join(programDirectory, 'kyc-tokend'), `#!/bin/sh\nexec ${node} ${program} "$@"\n`, {
  mode: 0o755,
})
afterAll(() => rmSync(programDirectory, { recursive: true }))
const env = { ...process.env, PATH: `${programDirectory}:${process.env['PATH']}` }

async function completionFile(shell: string): Promise<string> {
  const { status, stdout } = await runCli(['completions', shell])
  expect(status).toBe(0)
  const path = join(await tempDirectory(), `kyc-tokend.${shell}`)
  writeFileSync(path, stdout)
  return path
}
const isThere = (shell: string): boolean => spawnSync(shell, ['-c', 'true']).error === undefined

/** The words that bash offers for the last of these. */
async function bashOffers(words: string[], file: string): Promise<string[]> {
  const script = `set -eu; source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kyc_tokend; printf '%s\\n' "\${COMPREPLY[@]}"`
  const { stdout, stderr } = spawnSync('bash', ['-c', script, file, 'kyc-tokend', ...words], {
    encoding: 'utf8',
    env,
  })
  expect(stderr).toBe('')
  return stdout.split('\n').filter((line) => line !== '')
}

const actions = ['none', 'restart', 'HUP', 'USR1', 'USR2', 'WINCH', 'TERM', 'INT', 'QUIT']

test.skipIf(!isThere('bash'))(
  'bash binds them, and makes three words of --format=raw',
  { timeout: 60_000 },
  async () => {
    const path = await completionFile('bash')
    const bound = spawnSync('bash', ['-c', 'source "$0"; complete -p kyc-tokend', path], { encoding: 'utf8' })
    expect(bound.stdout).toContain('_kyc_tokend kyc-tokend')
    expect(await bashOffers(['token', '--format', '='], path)).toEqual(['raw', 'header', 'env', 'json'])
    expect(await bashOffers(['token', '--format', '=', 'j'], path)).toEqual(['json'])
    expect(await bashOffers(['exec', '--on-change', '=', 'U'], path)).toEqual(['USR1', 'USR2'])
  },
)

/** The words that a shell offers at the end of these lines, by line, without their descriptions. */
const offersOf: Readonly<
  Record<string, (file: string, lines: string[]) => Promise<Record<string, string[]>>>
> = {
  async bash(file, lines) {
    const offers = lines.map(async (line) => [
      line,
      [...new Set(await bashOffers(line.split(' ').slice(1), file))].toSorted(),
    ])
    return Object.fromEntries(await Promise.all(offers)) as Record<string, string[]>
  },
  async zsh(file, lines) {
    const script = new URL('../support/zsh-offers.zsh', import.meta.url).pathname
    return byLine(spawnSync('zsh', ['-f', script, file, await tempDirectory(), ...lines], spawned))
  },
  async fish(file, lines) {
    const script = `source $argv[1]; for line in $argv[2..]; echo "== $line"; complete -C $line; end`
    const home = await tempDirectory()
    const fishEnv = { ...env, HOME: home, XDG_CONFIG_HOME: home, XDG_DATA_HOME: home }
    return byLine(spawnSync('fish', ['-c', script, file, ...lines], { ...spawned, env: fishEnv }))
  },
}
const spawned = { encoding: 'utf8', timeout: 60_000, env } as const

function byLine({ stdout, stderr }: { stdout: string; stderr: string }): Record<string, string[]> {
  expect(stderr).toBe('')
  const [, ...parts] = stdout.split(/^== /m)
  return Object.fromEntries(
    parts.map((part) => {
      const [line = '', ...offers] = part.split('\n')
      return [
        line,
        offers
          .map((offer) => offer.split('\t')[0] ?? '')
          .filter((offer) => offer !== '')
          .toSorted(),
      ]
    }),
  )
}

const names = [...commands.map(({ name }) => name), 'help'].toSorted()
const expectedOffers: Readonly<Record<string, string[]>> = {
  'kyc-tokend ': names,
  'kyc-tokend st': ['status'],
  'kyc-tokend -': ['--help', '--version'],
  'kyc-tokend token --': ['--account', '--format', '--help', '--min-valid', '--socket', '--wait'],
  'kyc-tokend token --format ': ['env', 'header', 'json', 'raw'],
  'kyc-tokend token --wait ': [],
  'kyc-tokend token --socket status --j': [],
  'kyc-tokend status --': ['--account', '--all', '--help', '--json', '--socket', '--watch'],
  'kyc-tokend completions ': ['bash', 'fish', 'zsh'],
  'kyc-tokend help re': ['refresh', 'reject'],
  'kyc-tokend exec --on-change ': actions.toSorted(),
  'kyc-tokend exec --on-change U': ['USR1', 'USR2'],
  'kyc-tokend exec --stop-signal T': ['TERM'],
}

describe.each(Object.entries(offersOf))('%s', (shell, offersIn) => {
  test.skipIf(!isThere(shell))(
    `offers the commands, their options and values (skipped where there is no ${shell})`,
    { timeout: 90_000 },
    async () => {
      const file = await completionFile(shell)
      expect(await offersIn(file, Object.keys(expectedOffers))).toEqual(expectedOffers)
    },
  )
})

test.skipIf(!isThere('zsh'))(
  'zsh finds them by their name in its path, as packages install them (skipped where there is no zsh)',
  { timeout: 60_000 },
  async () => {
    const file = join(await tempDirectory(), '_kyc-tokend')
    copyFileSync(await completionFile('zsh'), file)
    const lines = ['kyc-tokend st', 'kyc-tokend sta']
    expect(await offersOf['zsh']?.(file, lines)).toEqual({ [lines[0]!]: ['status'], [lines[1]!]: ['status'] })
  },
)

test('accounts of the host, and what a value is, come from the program', async () => {
  const offers = async (...words: string[]): Promise<string> =>
    (await runCli(['completions', 'offers', '--', ...words])).stdout
  expect(await offers('check', '--config', '')).toBe(':files\n')
  expect(await offers('check', '--config=/etc')).toBe(':files\n')
  expect(await offers('token', '--format=')).toBe(
    ['raw', 'header', 'env', 'json'].map((value) => `--format=${value}\n`).join(''),
  )
  expect(await offers('status', '--account', '')).toBe(
    accountNames()
      .map((name) => `${name}\n`)
      .join(''),
  )
  expect(await offers('nonsense', '')).toBe('')
  expect(await offers('exec', '--', 'ls', '')).toBe(':files\n')
  expect(await offers('token', '--so')).toBe("--socket\tThe daemon's socket\n")
})
