import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { bundleProgram } from '../../src/build/bundle.ts'
import { cacheDirectory, moduleFunction } from '../../src/build/parts.ts'
import { PROGRAM } from '../support/daemon.ts'
import { unitFlags } from '../support/unit-flags.ts'

const LOADED_PARTS = new URL('../support/loaded-parts.cjs', import.meta.url).pathname
const [node, program] = PROGRAM
const bundle = path.dirname(program)

/** A directory beside the bundle, from which the optional native module is found, too. */
function besideBundle(): string {
  const directory = mkdtempSync(`${bundle}-`)
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }))
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
  expect(loaded).toEqual([
    'loaded ./main.cjs accepted',
    'loaded ./error.cjs accepted',
    'loaded ./run.cjs accepted',
  ])
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

it('a file is run as it is where its cache is of another one, as in the middle of an upgrade', () => {
  const directory = besideBundle()
  cpSync(bundle, directory, { recursive: true })
  const main = path.join(directory, 'main.cjs')
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string }
  const other = version.replaceAll(/\d/g, '9')
  const text = readFileSync(main, 'utf8').replaceAll(`"${version}"`, `"${other}"`)
  const [id = ''] = text.split('\n')
  writeFileSync(main, text.replace(id, id.replaceAll(/\w/g, '0')))
  expect(run(path.join(directory, 'cli.cjs'), '--version')).toBe(`kyc-tokend ${other}\n`)
})

it('a program without caches is the same', () => {
  const directory = besideBundle()
  cpSync(bundle, directory, { recursive: true })
  rmSync(path.join(directory, 'code-cache'), { recursive: true })
  const copy = path.join(directory, 'cli.cjs')
  expect(run('--require', LOADED_PARTS, copy, '--version')).toContain('loaded ./main.cjs no cache')
  expect(run(copy, '--help')).toBe(run(program, '--help'))
})

it('the same sources give the same caches, byte by byte', async () => {
  const directory = besideBundle()
  await bundleProgram(directory)
  const files = globSync('code-cache/*/*', { cwd: bundle })
  expect(files).toHaveLength(9)
  for (const file of files)
    expect(readFileSync(path.join(directory, file)).equals(readFileSync(path.join(bundle, file))), file).toBe(
      true,
    )
})
