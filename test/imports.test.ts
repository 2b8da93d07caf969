// The imports of src/: rooms import those below them, never each other; one file imports each library.
import { globSync, readFileSync } from 'node:fs'
import { isBuiltin } from 'node:module'
import { dirname, join } from 'node:path'
import { expect, it } from 'vitest'

/** The rooms of src/, from above to below: each imports those below it, never another of its own floor. */
const FLOORS = [
  ['cli.ts', 'client-cli.ts'],
  ['commands'],
  ['check', 'setup'],
  ['terminal'],
  ['daemon'],
  ['running'],
  ['source', 'share', 'storage', 'delivery', 'report', 'sandbox'],
  ['config'],
  ['token'],
  ['client'],
  ['host'],
  ['files'],
  ['lib', 'protocol.ts'],
]
/** All of `host/` that the client's package stands on. */
const CLIENT_HOST = /^src\/host\/(paths|account|ids|remedy)\.ts$/
/** It describes shapes where they are: of the configuration, of saved files, of what hosts share. */
const IN_SEVERAL_FILES = new Set(['valibot'])

const imports = globSync('src/**/*.ts')
  .filter((file) => !file.endsWith('.d.ts'))
  .flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(/(?:\bfrom |^import |\bimport\()'([^']+)'/gm)].map(
      ([, specifier = '']) => ({ file, specifier }),
    ),
  )

function roomOf(path: string): string {
  return path.split('/')[1] ?? path
}

function floorOf(path: string): number {
  return FLOORS.findIndex((rooms) => rooms.includes(roomOf(path)))
}

function isAllowed(file: string, target: string): boolean {
  if (roomOf(file) === roomOf(target) || roomOf(file) === 'build') return true
  if (floorOf(file) === -1 || floorOf(target) === -1) return false
  if (roomOf(file) === 'client' && roomOf(target) === 'host') return CLIENT_HOST.test(target)
  // What crosses the sockets and what knows nothing of this program are for all.
  return floorOf(file) < floorOf(target) || ['lib', 'protocol.ts'].includes(roomOf(target))
}

it('each room imports only those below it, types included', () => {
  const wrong = imports.flatMap(({ file, specifier }) => {
    if (!specifier.startsWith('.') || specifier.endsWith('.json')) return []
    const target = join(dirname(file), specifier)
    return isAllowed(file, target) ? [] : [`${file} imports ${target}`]
  })
  expect(imports.length).toBeGreaterThan(500)
  expect(wrong).toEqual([])
})

it('without `share` its library is not loaded', () => {
  const loading = globSync('src/share/*.ts').flatMap((file) => {
    return readFileSync(file, 'utf8').match(/^import (?!type)[^;'()]*'iovalkey'/gm) ?? []
  })
  expect(loading).toEqual([])
})

it('one file imports each library, and each library is imported', () => {
  const { dependencies } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    dependencies: Record<string, string>
  }
  const importers = new Map<string, Set<string>>()
  for (const { file, specifier } of imports) {
    if (specifier.startsWith('.') || isBuiltin(specifier)) continue
    const library = /^(@[^/]+\/)?[^/]+/.exec(specifier)?.[0] ?? specifier
    importers.set(library, (importers.get(library) ?? new Set()).add(file))
  }
  // Native code is required, not imported: lib/libc.ts.
  for (const library of Object.keys(dependencies).filter((name) => name !== 'koffi')) {
    const files = [...(importers.get(library) ?? [])]
    if (IN_SEVERAL_FILES.has(library)) expect(files.length, library).toBeGreaterThan(1)
    else expect(files, library).toHaveLength(1)
  }
})
