// The bundler's plugins: parts are files of their own, libraries bring only what is needed, modules of Node are loaded as cheaply as can be.
import { readFileSync } from 'node:fs'
import { isBuiltin } from 'node:module'
import { basename, extname } from 'node:path'
import type { Loader, Plugin } from 'esbuild'

/** Modules that are imported dynamically, or are shared by all files, are required from the file that they are in. */
export function separateFiles(options: {
  /** Source path or package, by the name of the file. */
  readonly parts: Readonly<Record<string, string>>
  /** The names of those that are separate for every import. */
  readonly shared: ReadonlySet<string>
}): Plugin {
  const nameOf = new Map(Object.entries(options.parts).map(([name, path]) => [basename(path), name]))
  return {
    name: 'separate-files',
    setup(bundle) {
      bundle.onResolve({ filter: /./ }, ({ path, kind }) => {
        const name = nameOf.get(basename(path))
        if (kind === 'entry-point' || name === undefined) return undefined
        if (kind !== 'dynamic-import' && !options.shared.has(name)) return undefined
        return { path: `./${name}.cjs`, external: true }
      })
    },
  }
}

/** Leaves out winston's copy of Node's streams, and its colours, which make the streams of stdout and stderr when they are loaded. */
export const withoutNeedless: Plugin = {
  name: 'without-needless',
  setup(bundle) {
    bundle.onResolve({ filter: /^(readable-stream|@colors\/colors)/ }, ({ path }) => ({
      path,
      namespace: 'needless',
    }))
    bundle.onLoad({ filter: /^readable-stream/, namespace: 'needless' }, ({ path }) => ({
      contents: `module.exports = require('node:stream')${path.endsWith('_writable.js') ? '.Writable' : ''}`,
    }))
    bundle.onLoad({ filter: /^@colors/, namespace: 'needless' }, () => ({ contents: 'module.exports = {}' }))
  },
}

/** `import name from 'node:…'` and `import * as name from 'node:…'`, minified or not. */
const IMPORT_OF_WHOLE_MODULE = /\bimport\s*(?:\*\s*as\s+|\s)([\w$]+)\s+from\s*(["'])([\w:/]+)\2/g
/** node-ipc imports them for networks, which it does not serve here: they take 3 ms of each start. */
const NETWORK_MODULES = new Set(['node:tls', 'node:dgram'])
/** `import(…)`, save in types; its `default` is read nowhere here. */
const DYNAMIC_IMPORT = /(?<!typeof )\bimport\((["'])([\w:/]+)\1\)/g

/**
 * Imports of a whole module of Node get the module itself. esbuild's conversion of them for CommonJS copies every property, and
 * node:util and others load ten more modules when their properties are read. A bundle requires by its own `require`: making
 * another loads the readers of source maps.
 */
export const leanSources: Plugin = {
  name: 'lean-sources',
  setup(bundle) {
    bundle.onLoad({ filter: /\.(js|mjs|ts)$/, namespace: 'file' }, ({ path }) => {
      const text = readFileSync(path, 'utf8')
      const contents = text
        .replace(IMPORT_OF_WHOLE_MODULE, (statement, name: string, _, module: string) => {
          if (!isBuiltin(module)) return statement
          const isNeedless = path.includes('/node_modules/node-ipc/') && NETWORK_MODULES.has(module)
          return `const ${name}=${isNeedless ? '{}' : `process.getBuiltinModule('${module}')`}`
        })
        .replace('createRequire(import.meta.url)', 'require')
        .replace(DYNAMIC_IMPORT, (expression, _, module: string) =>
          isBuiltin(module) ? `Promise.resolve(process.getBuiltinModule('${module}'))` : expression,
        )
      return {
        contents: withoutUnused(path, contents),
        loader: extname(path).replace(/^\.m?/, '') as Loader,
      }
    })
  },
}

/**
 * At its import node-ipc makes an instance, and cosmiconfig loads the calls of its asynchronous half; p-retry measures a time
 * that has no limit here, for which Node loads ten modules: none of it is used.
 */
function withoutUnused(path: string, text: string): string {
  if (path.endsWith('/node-ipc.js')) return text.replace('singleton=new IPCModule;', 'singleton=undefined;')
  if (path.includes('/node_modules/p-retry/')) return text.replaceAll('performance.now()', '0')
  if (path.includes('/node_modules/cosmiconfig/')) return text.replace('require("fs/promises")', '{}')
  return text
}
