import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { bundleProgram } from '../../src/build/bundle.ts'
import { cacheDirectory, moduleFunction } from '../../src/build/parts.ts'
import { PROGRAM, startDaemon } from '../support/daemon.ts'
import { serviceOf, tokenOf } from '../support/outside.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { unitFlags } from '../support/unit-flags.ts'
import { expectUntil } from '../support/until.ts'

const HEAP_SNAPSHOT = new URL('../support/heap-snapshot.cjs', import.meta.url).pathname
const LOADED_PARTS = new URL('../support/loaded-parts.cjs', import.meta.url).pathname
const [node, program] = PROGRAM
const bundle = path.dirname(program)

/** A directory beside the bundle, from which the optional native module is found, too. */
function besideBundle(): string {
  const directory = mkdtempSync(`${bundle}-`)
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }))
  return directory
}

function copyOfBundle(): string {
  const directory = besideBundle()
  cpSync(bundle, directory, { recursive: true })
  return directory
}

function run(...args: string[]): string {
  const { stdout, stderr } = spawnSync(node, args, { encoding: 'utf8' })
  return stdout + stderr
}

it.each([
  ['a shell', []],
  ['the unit', unitFlags()],
  ['the drop-in for many requests', unitFlags('examples/many-requests.conf')],
])('V8 takes the code caches in a daemon that %s starts', (_, flags) => {
  const output = run(...flags, '--require', LOADED_PARTS, program, 'run', '--config', '/nonexistent')
  const loaded = output.match(/^loaded .*/gm)
  expect(loaded).toEqual(
    ['main', 'error', 'run', 'secret', 'load-config'].map((name) => `loaded ./${name}.cjs accepted`),
  )
})

it('a cache has the functions that a start calls, and no others', () => {
  const cached = readFileSync(path.join(cacheDirectory(bundle, []), 'run.cjs'))
  const source = moduleFunction(readFileSync(path.join(bundle, 'run.cjs'), 'utf8'))
  const length = (flags: string): number => {
    const script = `console.log(new (require('vm').Script)(require('fs').readFileSync(0, 'utf8')).createCachedData().length)`
    return Number(execFileSync(node, [flags, '--eval', script], { input: source, encoding: 'utf8' }))
  }
  expect(cached.length).toBeGreaterThan(2 * length('--lazy'))
  expect(cached.length).toBeLessThan(0.75 * length('--no-lazy'))
})

/** A copy of the bundle in which these files are of another build, which has another version. */
function copyWithOther(files: string): { program: string; other: string } {
  const directory = copyOfBundle()
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string }
  const other = version.replaceAll(/\d/g, '9')
  for (const name of globSync(files, { cwd: directory })) {
    const file = path.join(directory, name)
    const text = readFileSync(file, 'utf8').replaceAll(`"${version}"`, `"${other}"`)
    const [id = ''] = text.split('\n')
    writeFileSync(file, id.startsWith('//') ? text.replace(id, id.replaceAll(/\w/g, '0')) : text)
  }
  return { program: path.join(directory, 'cli.cjs'), other }
}

it('files are run as they are where their caches are of another build, as in the middle of an upgrade', () => {
  const { program: copy, other } = copyWithOther('*.cjs')
  expect(run('--require', LOADED_PARTS, copy, '--version')).toContain('loaded ./main.cjs no cache')
  expect(run(copy, '--version')).toBe(`kyc-tokend ${other}\n`)
})

it.each(['error', 'main', 'run'])('files of two builds are not mixed: %s is of another', (name) => {
  const { program: copy } = copyWithOther(`${name}.cjs`)
  const { stderr, status } = spawnSync(node, [copy, 'run'], { encoding: 'utf8' })
  expect({ stderr, status }).toEqual({
    stderr: 'kyc-tokend was replaced by another version: try again\n',
    status: 75,
  })
})

it('a daemon whose program was replaced keeps its configuration and says that it is to be restarted', async () => {
  const service = await serviceOf()
  const directory = copyOfBundle()
  const daemon = startDaemon({
    directory: await tempDirectory(),
    baseUrl: service.url,
    program: [node, path.join(directory, 'cli.cjs')],
  })
  await daemon.listening()
  const part = path.join(directory, 'load-config.cjs')
  writeFileSync(part, readFileSync(part, 'utf8').replace(/\w/, '-'))
  daemon.process.kill('SIGHUP')
  expect((await daemon.logged('reload-failed'))['error']).toBe(
    'The program on disk is no longer the one that runs: restart kyc-tokend',
  )
  rmSync(directory, { recursive: true })
  expect((await tokenOf(daemon)).state).toBe('ready')
  expect(await daemon.end()).toBe(0)
})

it('what reads the configuration does not stay in memory', { timeout: 60_000 }, async () => {
  const service = await serviceOf()
  const directory = await tempDirectory()
  const snapshot = path.join(directory, 'memory.heapsnapshot')
  const daemon = startDaemon({
    directory,
    baseUrl: service.url,
    env: { HEAP_SNAPSHOT: snapshot },
    program: [node, '--require', HEAP_SNAPSHOT, program],
  })
  await daemon.listening()
  await tokenOf(daemon)
  daemon.process.kill('SIGUSR1')
  await expectUntil('the snapshot', () => daemon.stderr().includes('written'), { withinMs: 30_000 })
  const memory = readFileSync(snapshot, 'utf8')
  const holds = (part: string): boolean => memory.includes(path.join(bundle, part))
  expect([holds('run.cjs'), holds('load-config.cjs')]).toEqual([true, false])
})

it('a program without caches is the same', () => {
  const directory = copyOfBundle()
  rmSync(path.join(directory, 'code-cache'), { recursive: true })
  const copy = path.join(directory, 'cli.cjs')
  expect(run('--require', LOADED_PARTS, copy, '--version')).toContain('loaded ./main.cjs no cache')
  expect(run(copy, '--help')).toBe(run(program, '--help'))
})

it('the same sources give the same caches, byte by byte', async () => {
  const directory = besideBundle()
  await bundleProgram(directory)
  const files = globSync('code-cache/*/*', { cwd: bundle })
  expect(files).toHaveLength(15)
  for (const file of files)
    expect(readFileSync(path.join(directory, file)).equals(readFileSync(path.join(bundle, file))), file).toBe(
      true,
    )
})
