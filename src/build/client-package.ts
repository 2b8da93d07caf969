// The client library for programs of others: ES modules and CommonJS, each with its types.
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative, resolve } from 'node:path'
import { build, type BuildOptions, type Plugin } from 'esbuild'

/** Entry points of the package, by the name of the bundle. */
const entries: Readonly<Record<string, string>> = { client: 'client/index', testing: 'client/testing' }
const formats = [
  { format: 'esm', extension: '.js' },
  { format: 'cjs', extension: '.cjs' },
] as const

/** Writes client.js, client.cjs, testing.js and testing.cjs to this directory. */
export async function bundleClient(directory: string, options: BuildOptions): Promise<void> {
  for (const { format, extension } of formats)
    for (const [name, entry] of Object.entries(entries))
      await build({
        ...options,
        outfile: resolve(directory, `${name}${extension}`),
        entryPoints: [`./${entry}.ts`],
        format,
        // The Node of the program that uses it, which may be older than ours.
        target: 'node18',
        minifyWhitespace: false,
        // Jest runs CommonJS in a context that has no `import()`.
        supported: { 'dynamic-import': format === 'esm' },
        plugins: name === 'client' ? [] : [oneErrorClass(`./client${extension}`)],
      })
}

/** `instanceof TokenClientError` holds for the errors of a fake: the class is that of the client's bundle. */
function oneErrorClass(client: string): Plugin {
  return {
    name: 'one-error-class',
    setup(bundle) {
      bundle.onResolve({ filter: /\/errors\.ts$/ }, () => ({ path: client, external: true }))
    },
  }
}

/** Writes the types of the entry points, and of no other file, to this directory: .d.ts and .d.cts. */
export function writeClientTypes(directory: string): void {
  const emitted = mkdtempSync(join(tmpdir(), 'kyc-tokend-types-'))
  try {
    const project = join(import.meta.dirname, 'tsconfig.types.json')
    const { status } = spawnSync('tsc', ['--project', project, '--outDir', emitted], { stdio: 'inherit' })
    if (status !== 0) throw new Error('The types of the client cannot be made: see above')
    const pages = new Set(Object.values(entries).map((entry) => join(emitted, `${entry}.d.ts`)))
    for (const page of pages) {
      const text = readFileSync(page, 'utf8')
      for (const [, path = ''] of text.matchAll(/ from '(\.[^']+)\.ts'/g))
        pages.add(join(dirname(page), `${path}.d.ts`))
      for (const { extension } of formats) {
        const types = `.d${extension.replace('js', 'ts')}`
        const target = join(directory, relative(emitted, page).replace(/\.d\.ts$/, types))
        mkdirSync(dirname(target), { recursive: true })
        writeFileSync(target, text.replaceAll(/( from '\.[^']+)\.ts'/g, `$1${extension}'`))
      }
    }
  } finally {
    rmSync(emitted, { recursive: true, force: true })
  }
}
