import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { commands } from '../../src/commands/catalogue.ts'
import { runCli } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'

async function completionFile(shell: string): Promise<string> {
  const { status, stdout } = await runCli(['completions', shell])
  expect(status).toBe(0)
  const path = join(await tempDirectory(), `kyc-tokend.${shell}`)
  writeFileSync(path, stdout)
  return path
}
const isThere = (shell: string): boolean => spawnSync(shell, ['-c', 'true']).error === undefined

/** What bash offers for the last of these words. */
async function bashOffers(words: string[], path?: string): Promise<string[]> {
  const script = `set -eu; source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kyc_tokend; printf '%s\\n' "\${COMPREPLY[@]}"`
  const file = path ?? (await completionFile('bash'))
  const { stdout, stderr } = spawnSync('bash', ['-c', script, file, 'kyc-tokend', ...words], {
    encoding: 'utf8',
  })
  expect(stderr).toBe('')
  return stdout.split('\n').filter((line) => line !== '')
}

test('bash offers the commands, their options, and the values there are', async () => {
  const path = await completionFile('bash')
  const offered = await bashOffers([''], path)
  expect(offered).toEqual([...commands.map(({ name }) => name), 'help', '--help', '--version'])
  expect(await bashOffers(['st'], path)).toEqual(['status'])
  expect(await bashOffers(['token', '--f'], path)).toEqual(['--format'])
  expect(await bashOffers(['token', '--format', ''], path)).toEqual(['raw', 'header', 'env', 'json'])
  expect(await bashOffers(['token', '--wait', ''], path)).toEqual([])
  expect(await bashOffers(['completions', 'z'], path)).toEqual(['zsh'])
  expect(await bashOffers(['help', 're'], path)).toEqual(['refresh', 'reject'])
  expect(await bashOffers(['exec', '--', 'printen'], path)).toContain('printenv')
  for (const { name, options } of commands)
    expect(await bashOffers([name, '--'], path)).toEqual(
      [...Object.keys(options), 'help'].map((o) => `--${o}`),
    )
})

test('bash binds them to the command', async () => {
  const { stdout } = spawnSync(
    'bash',
    ['-c', 'source "$0"; complete -p kyc-tokend', await completionFile('bash')],
    {
      encoding: 'utf8',
    },
  )
  expect(stdout).toContain('_kyc_tokend kyc-tokend')
})

test.skipIf(!isThere('zsh'))('zsh loads them (skipped where there is no zsh)', async () => {
  const script = 'autoload -U compinit; compinit -D; source "$0"; whence -w _kyc-tokend'
  const { stdout, stderr } = spawnSync('zsh', ['-fc', script, await completionFile('zsh')], {
    encoding: 'utf8',
  })
  expect({ stdout, stderr }).toEqual({ stdout: '_kyc-tokend: function\n', stderr: '' })
})

test.skipIf(!isThere('fish'))('fish offers them (skipped where there is no fish)', async () => {
  const script = `source "$argv[1]"; complete -C 'kyc-tokend st'; complete -C 'kyc-tokend token --format '`
  const { stdout, stderr } = spawnSync('fish', ['-N', '-c', script, await completionFile('fish')], {
    encoding: 'utf8',
  })
  expect(stderr).toBe('')
  expect(stdout).toMatch(/^status\t/m)
  expect(stdout).toMatch(/^header\b/m)
})

test('zsh and fish are told every command and option', async () => {
  for (const shell of ['zsh', 'fish']) {
    const { stdout } = await runCli(['completions', shell])
    for (const { name, options } of commands) {
      expect(stdout).toContain(name)
      for (const option of Object.keys(options)) expect(stdout).toMatch(new RegExp(`(--|-l )${option}\\b`))
    }
  }
})
