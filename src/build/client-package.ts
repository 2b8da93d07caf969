// The client library for programs of others: as an ES module and as CommonJS, with types for both.
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { build, type BuildOptions } from 'esbuild'

/** Both entry points are in one file, so that both have the same class of errors. */
const ENTRY = `export * from './client/index.ts'\nexport * from './client/testing.ts'`
/** The files that the types of the entry points are in. */
const TYPES = ['client/index', 'client/testing', 'client/token-source', 'protocol']

/** Writes client.js and client.cjs to this directory. */
export async function bundleClient(directory: string, options: BuildOptions): Promise<void> {
  for (const [format, file] of [
    ['esm', 'client.js'],
    ['cjs', 'client.cjs'],
  ] as const)
    await build({
      ...options,
      outfile: resolve(directory, file),
      stdin: { contents: ENTRY, resolveDir: options.absWorkingDir!, loader: 'ts' },
      format,
      // The Node of the program that uses it, which may be older than ours.
      target: 'node18',
      minifyWhitespace: false,
      // Jest runs CommonJS in a context that has no `import()`.
      supported: { 'dynamic-import': format === 'esm' },
    })
}

/** Writes the types to `esm` and `cjs` in this directory: the same files, in the format of the directory. */
export function writeClientTypes(directory: string): void {
  const emitted = mkdtempSync(join(tmpdir(), 'kyc-tokend-types-'))
  try {
    const project = join(import.meta.dirname, 'tsconfig.types.json')
    const { status } = spawnSync('tsc', ['--project', project, '--outDir', emitted], { stdio: 'inherit' })
    if (status !== 0) throw new Error('The types of the client cannot be made: see above')
    for (const format of ['esm', 'cjs'])
      for (const name of TYPES)
        cpSync(join(emitted, `${name}.d.ts`), join(directory, format, `${name}.d.ts`), { recursive: true })
    writeFileSync(join(directory, 'cjs/package.json'), '{ "type": "commonjs" }\n')
  } finally {
    rmSync(emitted, { recursive: true, force: true })
  }
}
