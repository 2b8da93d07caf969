// The program as a few lean files, and the client library.
//
// How long a start takes is how many files are read, how much of them is parsed, and what is loaded of Node. So each
// command is one file with all it needs at first; what it needs only later is in it, too, and set up only then, or,
// where it is heavy, a file of its own. They are CommonJS, which loads a module of Node only when it is asked for: an
// ES import of node:http sets up WebSocket and fetch as well, and costs as much as the rest of the start.
import { chmodSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { build, type BuildOptions, type Plugin } from 'esbuild'

/** Beside cli.cjs, which holds the command `token`; by file name. */
const commands: Readonly<Record<string, string>> = Object.fromEntries(
  [
    'run',
    'watch',
    'status',
    'refresh',
    'reject',
    'explain',
    'check',
    'exec',
    'sandbox',
    'demo',
    'completions',
    'help',
  ].map((name) => [name, `./commands/${name}.ts`]),
)
const heavy: Readonly<Record<string, string>> = {
  schema: './config/schema.ts',
  winston: 'winston',
  cosmiconfig: 'cosmiconfig',
  systeminformation: 'systeminformation',
  'prom-client': 'prom-client',
}
/** There is one of it for all files: the program tells by the class what an error is. */
const shared: Readonly<Record<string, string>> = { error: './lib/error.ts' }

/** Writes cli.cjs with its parts, and client.js, to this directory. */
export async function bundleProgram(directory: string): Promise<void> {
  const outdir = resolve(directory)
  const parts = { ...commands, ...heavy, ...shared }
  await build({
    ...common,
    outdir,
    entryPoints: { cli: './cli.ts', ...parts },
    outExtension: { '.js': '.cjs' },
    format: 'cjs',
    target: 'node22.18',
    plugins: [filesOfTheirOwn(parts), withoutNeedless],
    minifyIdentifiers: true,
    // Files of our own are required, which takes a fraction of the time.
    supported: { 'dynamic-import': false },
    define: { 'import.meta.url': '__url' },
    banner: { js: "const __url=require('node:url').pathToFileURL(__filename).href;" },
  })
  // The library runs in programs of others, on the Node they have.
  await build({
    ...common,
    outdir,
    entryPoints: { client: './client.ts' },
    format: 'esm',
    target: 'node20',
    minifyWhitespace: false,
  })
  chmodSync(join(outdir, 'cli.cjs'), 0o755)
}

const common: BuildOptions = {
  absWorkingDir: import.meta.dirname,
  bundle: true,
  platform: 'node',
  // Native code cannot be bundled, and it is optional.
  external: ['koffi', '@koromix/*'],
  minifySyntax: true,
  minifyWhitespace: true,
  legalComments: 'linked',
  logLevel: 'warning',
}

/** What is imported dynamically, or shared, is required from the file that it is in. */
function filesOfTheirOwn(parts: Readonly<Record<string, string>>): Plugin {
  const nameOf = new Map(Object.entries(parts).map(([name, path]) => [path.split('/').at(-1), name]))
  return {
    name: 'files-of-their-own',
    setup(bundle) {
      bundle.onResolve({ filter: /./ }, ({ path, kind }) => {
        const name = nameOf.get(path.split('/').at(-1))
        const isApart = kind === 'dynamic-import' || (name !== undefined && name in shared)
        if (kind === 'entry-point' || name === undefined || !isApart) return undefined
        return { path: `./${name}.cjs`, external: true }
      })
    },
  }
}

/**
 * What libraries load and do not need here: winston a copy of Node's streams, node-ipc what it speaks over a network
 * (TLS alone takes 3 MB and 5 ms) and an instance that is there in case somebody wants one.
 */
const withoutNeedless: Plugin = {
  name: 'without-needless',
  setup(bundle) {
    bundle.onResolve({ filter: /^readable-stream/ }, ({ path }) => ({ path, namespace: 'needless' }))
    bundle.onResolve({ filter: /^node:(tls|dgram)$/ }, ({ path, importer }) =>
      importer.includes('node_modules/node-ipc/') ? { path, namespace: 'needless' } : undefined,
    )
    bundle.onLoad({ filter: /^readable-stream/, namespace: 'needless' }, ({ path }) => ({
      contents: `module.exports = require('node:stream')${path.endsWith('_writable.js') ? '.Writable' : ''}`,
    }))
    bundle.onLoad({ filter: /node-ipc\.js$/ }, ({ path }) => ({
      contents: readFileSync(path, 'utf8').replace('singleton=new IPCModule;', 'singleton=undefined;'),
    }))
    bundle.onLoad({ filter: /^node:/, namespace: 'needless' }, () => ({ contents: 'export default {}' }))
  },
}
