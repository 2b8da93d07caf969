// The program as a few lean files, and the client library.
//
// A start costs what is read and parsed, and what is loaded of Node. So each command is one file with all it needs at
// first; what it needs only later is in it, too, and set up only then, or, where it is heavy, a file of its own. They are CommonJS, which loads a module of Node only when it is asked for: an
// ES import of node:http sets up WebSocket and fetch as well, and costs as much as the rest of the start.
import { chmodSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { build, type BuildOptions } from 'esbuild'

import { bundleClient } from './client-package.ts'
import { writeCodeCaches } from './code-cache.ts'
import { leanSources, separateFiles, withoutNeedless } from './plugins.ts'

/** Beside main.cjs, which holds the command `token`; by file name. */
const commands: Readonly<Record<string, string>> = Object.fromEntries(
  [
    'setup',
    'run',
    'watch',
    'status',
    'alert-test',
    'refresh',
    'reject',
    'explain',
    'check',
    'exec',
    'sandbox',
    'demo',
    'completions',
  ].map((name) => [name, `./commands/${name}.ts`]),
)
const heavy: Readonly<Record<string, string>> = {
  'load-config': './config/load.ts',
  'winston-logger': './report/winston-logger.ts',
  'js-yaml': 'js-yaml',
  systeminformation: 'systeminformation',
  'share-session': './share/share-session.ts',
}
/** Separate for every import: errors and secrets are recognized by their class, and cosmiconfig requires the parser of YAML for YAML only. */
const shared: ReadonlySet<string> = new Set(['error', 'secret', 'js-yaml'])

/** Writes cli.cjs with its parts and their code caches, and the client library, to this directory. */
export async function bundleProgram(directory: string): Promise<void> {
  const outdir = resolve(directory)
  const parts = { ...commands, ...heavy, error: './lib/error.ts', secret: './lib/secret.ts' }
  await build({
    ...common,
    outdir,
    entryPoints: { cli: './build/loader.ts', main: './cli.ts', ...parts },
    outExtension: { '.js': '.cjs' },
    format: 'cjs',
    target: 'node22.18',
    plugins: [separateFiles({ parts, shared }), withoutNeedless, leanSources],
    minifyIdentifiers: true,
    // A separate file is required, which takes a fraction of the time.
    supported: { 'dynamic-import': false },
    // Libraries bring what they load for their own debugging, unless they are in production.
    define: { 'import.meta.url': '__url', 'process.env.NODE_ENV': '"production"' },
    banner: { js: "const __url=require('node:url').pathToFileURL(__filename).href;" },
  })
  await writeCodeCaches(outdir, ['main', ...Object.keys(parts)])
  await bundleClient(outdir, common)
  chmodSync(join(outdir, 'cli.cjs'), 0o755)
}

const common: BuildOptions = {
  absWorkingDir: dirname(import.meta.dirname),
  bundle: true,
  platform: 'node',
  // Native code cannot be bundled, and it is optional.
  external: ['koffi', '@koromix/*'],
  // Its other build requires its parts by names that esbuild does not see.
  alias: { 'jsonc-parser': 'jsonc-parser/lib/esm/main.js' },
  minifySyntax: true,
  minifyWhitespace: true,
  legalComments: 'linked',
  logLevel: 'warning',
}
