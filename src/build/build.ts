// Makes dist/: the bundles, the types, the JSON Schema.
import { rmSync, writeFileSync } from 'node:fs'
import { bundleProgram } from './bundle.ts'
import { writeClientTypes } from './client-package.ts'
import { configJsonSchema } from '../config/json-schema.ts'

rmSync('dist', { recursive: true, force: true })
await bundleProgram('dist')
writeFileSync('dist/kyc-tokend.config.schema.json', `${JSON.stringify(configJsonSchema(), null, 2)}\n`)
writeClientTypes('dist/types')
