// The program as one lean bundle with its heavy parts aside, and the client library.
import { chmodSync } from 'node:fs'
import { join } from 'node:path'
import { build, type BuildOptions } from 'esbuild'

/** Writes cli.js with its parts, and client.js, to this directory. */
export async function bundleProgram(outdir: string): Promise<void> {
  const common: BuildOptions = {
    bundle: true,
    format: 'esm',
    platform: 'node',
    outdir,
    // Native code cannot be bundled, and it is optional.
    external: ['koffi', '@koromix/*'],
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: 'linked',
    logLevel: 'warning',
  }
  // What is imported dynamically in the source becomes a part of its own, and is loaded only when it is needed.
  await build({
    ...common,
    entryPoints: [source('cli.ts')],
    splitting: true,
    chunkNames: '[name]-[hash]',
    target: 'node22.18',
    // CommonJS libraries inside an ES module want their `require`.
    banner: { js: "import{createRequire as __r}from'node:module';const require=__r(import.meta.url);" },
  })
  // The library runs in programs of others, on the Node they have.
  await build({
    ...common,
    entryPoints: [source('client.ts')],
    target: 'node20',
    minifyWhitespace: false,
  })
  chmodSync(join(outdir, 'cli.js'), 0o755)
}

function source(name: string): string {
  return join(import.meta.dirname, name)
}
