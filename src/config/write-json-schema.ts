// Writes the JSON Schema of the configuration to the file that is named: part of the build.
import { writeFileSync } from 'node:fs'

import { configJsonSchema } from './schema.ts'

const [target] = process.argv.slice(2)
if (target === undefined) throw new Error('usage: write-json-schema.ts FILE')
writeFileSync(target, `${JSON.stringify(configJsonSchema(), null, 2)}\n`)
