import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { commands } from '../../src/commands/specs.ts'
import { PROGRAM } from '../support/daemon.ts'
import { lacks } from '../support/lacks.ts'
import { runCli } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'

// The words so far, and the words that are offered.
test.each([
  ['', [...commands.map(({ name }) => name), 'help', '--version', '--help'].join(' ')],
  ['st', 'status'],
  ['-', '--version --help'],
  ['token --', '--format --min-valid --wait --socket --account --help'],
  ['token --format ', 'raw header env json'],
  ['token --wait ', ''],
  ['token --socket status --f', '--format'],
  ['help re', 'refresh reload reject'],
  ['exec -- ls ', ':files'],
  ['check --config ', ':files'],
  ['nonsense ', ''],
])('after %j comes %j', async (words, offers) => {
  const { stdout } = await runCli(['completions', 'offers', '--', ...words.split(' ')])
  expect(stdout.split('\n').slice(0, -1).join(' ')).toBe(offers)
})

test.skipIf(lacks('bash'))('bash asks the program', async () => {
  const directory = await tempDirectory()
  writeFileSync(join(directory, 'kyc-tokend'), `#!/bin/sh\nexec ${PROGRAM.join(' ')} "$@"\n`, { mode: 0o755 })
  const path = join(directory, 'kyc-tokend.bash')
  writeFileSync(path, (await runCli(['completions', 'bash'])).stdout)
  const offersOf = (...words: string[]): string => {
    const script = `set -eu; source "$0"; complete -p kyc-tokend >&2; COMP_WORDS=("$@")
      COMP_CWORD=$(($# - 1)); _kyc_tokend; echo "\${COMPREPLY[@]}"`
    const env = { ...process.env, PATH: `${directory}:${process.env['PATH']}` }
    const given = ['-c', script, path, 'kyc-tokend', ...words]
    const { stdout, stderr } = spawnSync('bash', given, { encoding: 'utf8', env })
    expect(stderr).toBe('complete -F _kyc_tokend kyc-tokend\n')
    return stdout.trim()
  }
  expect(offersOf('st')).toBe('status')
  expect(offersOf('token', '--format', '')).toBe('raw header env json')
})
