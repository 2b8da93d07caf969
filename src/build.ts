// Makes dist/: the bundles, the types, the JSON Schema.
import { spawnSync } from 'node:child_process'
import { rmSync, writeFileSync } from 'node:fs'
import { bundleProgram } from './bundle.ts'
import { configJsonSchema } from './config/schema.ts'

rmSync('dist', { recursive: true, force: true })
await bundleProgram('dist')
writeFileSync('dist/kyc-tokend.config.schema.json', `${JSON.stringify(configJsonSchema(), null, 2)}\n`)
const types = spawnSync('tsc', ['--project', 'src/tsconfig.types.json'], { stdio: 'inherit' })
process.exitCode = types.status ?? 1
