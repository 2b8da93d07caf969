import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
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
  ['a command', ['exec', '--', '/nowhere/a\n<0>b\u001b']],
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

test('output that cannot be written is one sentence', () => {
  const { status, stderr } = spawnSync('sh', ['-c', `"${PROGRAM.join(`" "`)}" --help > /dev/full`], {
    cwd: root,
    encoding: 'utf8',
  })
  expect(status).toBe(70)
  expect(stderr).toMatch(/^The output cannot be written .*\n$/)
})

// ---- on an older Node -----------------------------------------------------------------------------------------------

const oldNode = '/usr/bin/node'
const isOldNodeThere = spawnSync(oldNode, ['--version']).stdout?.toString().startsWith('v20.') ?? false

test.each(['run', 'demo'])('%s on another system says that the daemon needs Linux', (command) => {
  const elsewhere = "data:text/javascript,Object.defineProperty(process, 'platform', { value: 'darwin' })"
  const [node, program] = PROGRAM
  const { status, stderr } = spawnSync(node, ['--import', elsewhere, program, command], { encoding: 'utf8' })
  expect({ status, stderr }).toEqual({
    status: 69,
    stderr: expect.stringMatching(
      /^The daemon of kyc-tokend runs on Linux only, and this is darwin: .*\n$/,
    ) as string,
  })
})

/** The program as it is shipped, in a package of its own. */
async function shippedPackage(options: { pinned?: string; hasKoffi?: boolean }): Promise<string> {
  const directory = await tempDirectory()
  cpSync(dirname(PROGRAM[1]), join(directory, 'dist'), { recursive: true })
  copyFileSync(join(root, 'package.json'), join(directory, 'package.json'))
  mkdirSync(join(directory, 'node_modules/.bin'), { recursive: true })
  for (const name of options.hasKoffi === true ? ['koffi', '@koromix'] : [])
    symlinkSync(join(root, 'node_modules', name), join(directory, 'node_modules', name))
  if (options.pinned !== undefined) symlinkSync(options.pinned, join(directory, 'node_modules/.bin/node'))
  return join(directory, 'dist', basename(PROGRAM[1]))
}
const onOldNode = (program: string, ...args: string[]): { status: number | null; output: string } => {
  const { status, stdout, stderr } = spawnSync(oldNode, [program, ...args], {
    encoding: 'utf8',
    timeout: 20_000,
  })
  return { status, output: stdout + stderr }
}

test.skipIf(!isOldNodeThere)(
  'what is shipped goes over from Node 20 to the pinned one (skipped where /usr/bin/node is another)',
  async () => {
    const program = await shippedPackage({ pinned: process.execPath, hasKoffi: true })
    const { version } = (await import('../package.json', { with: { type: 'json' } })).default
    expect(onOldNode(program, '--version')).toEqual({
      status: 0,
      output: expect.stringContaining(`kyc-tokend ${version} (`),
    })
    expect(onOldNode(program, 'token', '--wait', 'long')).toMatchObject({ status: 64 })
  },
)

test.skipIf(!isOldNodeThere)(
  'what is shipped says on Node 20 what to do where it cannot (skipped where /usr/bin/node is another)',
  async () => {
    const sentence = /^kyc-tokend needs Node 22\.21, 24\.5 or 26.*this is v20\S*: .*\n$/
    for (const options of [{}, { pinned: oldNode }, { pinned: process.execPath, hasKoffi: false }]) {
      const program = await shippedPackage(options)
      for (const args of [['--version'], ['run'], []])
        expect(onOldNode(program, ...args)).toEqual({
          status: 69,
          output: expect.stringMatching(sentence) as string,
        })
    }
  },
)
