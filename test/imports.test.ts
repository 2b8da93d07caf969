// The imports of src/: layers import those below them, never each other; one file imports each library.
import { globSync, readFileSync } from 'node:fs'
import { isBuiltin } from 'node:module'
import { dirname, join } from 'node:path'
import { expect, it } from 'vitest'

const CORE = ['lib', 'protocol.ts', 'token']
const PARTS = [...CORE, 'config', 'source', 'storage', 'share', 'delivery', 'report']
const DAEMON = ['daemon.ts', 'configured-keeper.ts', 'run-daemon.ts']
const CONFIG_TYPES = 'config/config.ts'

/** By folder or file of src/: what it may import beside itself. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  lib: [],
  'protocol.ts': ['lib'],
  token: ['lib', 'protocol.ts'],
  config: ['lib', 'token/outcome.ts'],
  source: [...CORE, CONFIG_TYPES],
  storage: CORE,
  share: [...CORE, CONFIG_TYPES],
  delivery: [...CORE, CONFIG_TYPES],
  report: [...CORE, CONFIG_TYPES],
  sandbox: ['lib', CONFIG_TYPES, 'config/service.ts', 'token/outcome.ts'],
  client: ['lib', 'protocol.ts'],
  build: ['config', 'lib', 'client'],
  ...Object.fromEntries(DAEMON.map((file) => [file, [...PARTS, ...DAEMON]])),
  commands: [...PARTS, ...DAEMON, 'sandbox', 'client'],
  'cli.ts': ['lib', 'commands'],
  'client-cli.ts': ['commands'],
}
/** It describes shapes where they are: of the configuration, of saved files, of what hosts share. */
const IN_SEVERAL_FILES = new Set(['valibot'])

const imports = globSync('src/**/*.ts')
  .filter((file) => !file.endsWith('.d.ts'))
  .flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(/(?:\bfrom |^import |\bimport\()'([^']+)'/gm)].map(
      ([, specifier = '']) => ({ file, specifier }),
    ),
  )

function layerOf(path: string): string {
  return path.split('/')[1] ?? path
}

it('each folder imports only those below it', () => {
  const wrong = imports.flatMap(({ file, specifier }) => {
    if (!specifier.startsWith('.') || specifier.endsWith('.json')) return []
    const target = join(dirname(file), specifier)
    const allowed = new Set([layerOf(file), ...(ALLOWED[layerOf(file)] ?? [])])
    const isAllowed = allowed.has(layerOf(target)) || allowed.has(target.replace('src/', ''))
    return isAllowed ? [] : [`${file} imports ${target}`]
  })
  expect(imports.length).toBeGreaterThan(500)
  expect(wrong).toEqual([])
})

it('without `share` none of its code is loaded: others import its types, or load it when needed', () => {
  const others = globSync('src/**/*.ts').filter((file) => !file.startsWith('src/share/'))
  const loading = others.flatMap((file) => {
    const text = readFileSync(file, 'utf8')
    return text.match(/^(?:import|export) (?!type)[^;'()]*'[./]*\/share\/[^']+'/gm) ?? []
  })
  expect(imports.filter(({ specifier }) => specifier.includes('/share/')).length).toBeGreaterThan(1)
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
