// The program as one file, the small one for the commands of clients, and the client library: as an ES module and as
// CommonJS, with types for both.
//
// esbuild makes a module that is imported by `import()` a part of the same file, and runs it at the first
// call: a start runs only the modules that it needs. CommonJS loads a module of Node only then, too: an ES
// import of node:http sets up WebSocket and fetch as well.
import { spawnSync } from 'node:child_process'
import { chmodSync, cpSync, mkdtempDisposableSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { build, type BuildOptions } from 'esbuild'
import { createSbom } from './sbom.ts'

const common = {
  absWorkingDir: dirname(import.meta.dirname),
  bundle: true,
  platform: 'node',
  minifySyntax: true,
  // Names stay, by which the stack of an internal fault is read.
  minifyWhitespace: true,
  legalComments: 'linked',
  logLevel: 'warning',
} satisfies BuildOptions

const PROGRAMS = ['cli', 'client-cli'] as const

/** Writes cli.cjs, client-cli.cjs, their bill of materials, and the client library to this directory. */
export async function bundleProgram(directory: string): Promise<void> {
  const { metafile } = await build({
    ...common,
    metafile: true,
    outdir: resolve(directory),
    outExtension: { '.js': '.cjs' },
    // A whole program each: code in common is in both.
    entryPoints: PROGRAMS.map((name) => `./${name}.ts`),
    format: 'cjs',
    target: 'node22.18',
    // Native code cannot be bundled. systeminformation would be a third of the file, which V8 reads at each
    // start, and is needed by `check` alone.
    external: ['koffi', '@koromix/*', 'systeminformation'],
    // Modules of Node are required at `import()`, too, which takes a fraction of the time.
    supported: { 'dynamic-import': false },
    // Libraries bring what they load for their own debugging, unless they are in production.
    define: { 'import.meta.filename': '__filename', 'process.env.NODE_ENV': '"production"' },
  })
  for (const name of PROGRAMS) chmodSync(join(directory, `${name}.cjs`), 0o755)
  const sbom = createSbom(Object.keys(metafile.inputs), dirname(common.absWorkingDir))
  writeFileSync(join(directory, 'sbom.cdx.json'), `${JSON.stringify(sbom, null, 2)}\n`)
  await bundleClient(directory)
}

/** Both entry points are in one file, so that both have the same class of errors. */
const ENTRY = `export * from './client/index.ts'\nexport * from './client/testing.ts'`
/** The files that the types of the entry points are in. */
const TYPES = ['client/index', 'client/testing', 'client/token-source', 'protocol']

/** Writes client.js and client.cjs to this directory. */
async function bundleClient(directory: string): Promise<void> {
  for (const [format, file] of [
    ['esm', 'client.js'],
    ['cjs', 'client.cjs'],
  ] as const)
    await build({
      ...common,
      outfile: resolve(directory, file),
      stdin: { contents: ENTRY, resolveDir: common.absWorkingDir, loader: 'ts' },
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
  using emitted = mkdtempDisposableSync(join(tmpdir(), 'kyc-tokend-types-'))
  const project = join(import.meta.dirname, 'tsconfig.types.json')
  const { status } = spawnSync('tsc', ['--project', project, '--outDir', emitted.path], { stdio: 'inherit' })
  if (status !== 0) throw new Error('The types of the client cannot be made: see above')
  for (const format of ['esm', 'cjs'])
    for (const name of TYPES)
      cpSync(join(emitted.path, `${name}.d.ts`), join(directory, format, `${name}.d.ts`), { recursive: true })
  writeFileSync(join(directory, 'cjs/package.json'), '{ "type": "commonjs" }\n')
}
