import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text as textOf } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import { PROGRAM } from './support/daemon.ts'
import { lacks } from './support/lacks.ts'
import { runCli } from './support/run-cli.ts'
import { tempDirectory } from './support/temp-directory.ts'

const root = new URL('..', import.meta.url).pathname

test.each([
  ['a configuration file', ['run', '--config', 'a\n<0>b\u001b.json']],
  ['a socket', ['token', '--socket', '/nowhere/a\n<0>b\u001b']],
])('the path of %s begins no line and holds no control character where it is printed', async (_, args) => {
  const cwd = await tempDirectory()
  writeFileSync(join(cwd, 'a\n<0>b\u001b.json'), '{', { mode: 0o600 })
  const { stderr } = await runCli(args, { cwd })
  expect(stderr).toContain('a\\u000a<0>b\\u001b')
  expect(stderr).not.toContain('\u001b')
  expect(stderr).not.toMatch(/^<0>/m)
})

test.skipIf(lacks('bash'))('output without a reader is no error', async () => {
  const { stdout } = spawnSync(
    'bash',
    ['-c', `"${PROGRAM.join(`" "`)}" --help | true; echo "\${PIPESTATUS[0]}"`],
    { cwd: root, encoding: 'utf8' },
  )
  expect(stdout).toBe('0\n')
})

test('a fault without a reader ends with its status all the same', async () => {
  const [node, program] = PROGRAM
  const child = spawn(node, [program, 'check', '--config', '/nonexistent'], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  child.stdout.destroy()
  const [stderr, [status]] = await Promise.all([textOf(child.stderr), once(child, 'close')])
  expect({ status, stderr }).toEqual({ status: 78, stderr: '' })
})

const oldNode = '/usr/bin/node'
const isOldNodeThere = spawnSync(oldNode, ['--version']).stdout?.toString().startsWith('v20.') ?? false

test.skipIf(!isOldNodeThere)(
  'what is shipped says on Node 20 what to do (skipped where /usr/bin/node is another)',
  () => {
    for (const args of [['--version'], ['run'], []]) {
      const { status, stdout, stderr } = spawnSync(oldNode, [PROGRAM[1], ...args], { encoding: 'utf8' })
      expect({ status, output: stdout + stderr }).toEqual({
        status: 69,
        output: expect.stringMatching(
          /^kyc-tokend needs Node 24\.18\.1 or newer, and this is v20\S*: .*\n$/,
        ) as string,
      })
    }
  },
)
