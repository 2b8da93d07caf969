// Makes dist/: the program as one lean bundle with its heavy parts aside, the client library, the types, the JSON Schema.
import { spawnSync } from 'node:child_process'
import { chmodSync, rmSync, writeFileSync } from 'node:fs'
import { build, type BuildOptions } from 'esbuild'
import { configJsonSchema } from './config/schema.ts'

const common: BuildOptions = {
  bundle: true,
  format: 'esm',
  platform: 'node',
  outdir: 'dist',
  // Native code cannot be bundled, and it is optional.
  external: ['koffi', '@koromix/*'],
  minifySyntax: true,
  minifyWhitespace: true,
  legalComments: 'linked',
  logLevel: 'warning',
}

rmSync('dist', { recursive: true, force: true })

// What is imported dynamically in the source becomes a chunk of its own, and is loaded only when it is needed.
await build({
  ...common,
  entryPoints: ['src/cli.ts'],
  splitting: true,
  chunkNames: '[name]-[hash]',
  target: 'node22.18',
  // CommonJS libraries inside an ES module want their `require`.
  banner: { js: "import{createRequire as __r}from'node:module';const require=__r(import.meta.url);" },
})
// The library runs in programs of others, on the Node they have.
await build({ ...common, entryPoints: ['src/client.ts'], target: 'node20', minifyWhitespace: false })

chmodSync('dist/cli.js', 0o755)
writeFileSync('dist/kyc-tokend.config.schema.json', `${JSON.stringify(configJsonSchema(), null, 2)}\n`)
const types = spawnSync('tsc', ['--project', 'src/tsconfig.types.json'], { stdio: 'inherit' })
process.exitCode = types.status ?? 1
