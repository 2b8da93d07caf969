// Makes dist/: program, bill of materials, client library, types, JSON Schema. Packages in dist/ are kept.
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { bundleProgram, writeClientTypes } from './bundle.ts'
import { configJsonSchema } from '../config/json-schema.ts'

const PACKAGES = /\.(deb|tgz|tar)$|^repository$/

process.stderr.write('Building the program and the client library …\n')
mkdirSync('dist', { recursive: true })
for (const name of readdirSync('dist').filter((entry) => !PACKAGES.test(entry)))
  rmSync(join('dist', name), { recursive: true })
await bundleProgram('dist')
writeFileSync('dist/kyc-tokend.config.schema.json', `${JSON.stringify(configJsonSchema(), null, 2)}\n`)
writeClientTypes('dist/types')
