// The JSON Schema of the configuration file, made from the schema when the program is built.
import { toJsonSchema } from '@valibot/to-json-schema'
import { configSchema } from './schema.ts'

/** Draft 7, which editors know best. */
export function configJsonSchema(): Record<string, unknown> {
  const { $schema, ...rest } = toJsonSchema(configSchema(), {
    target: 'draft-07',
    ignoreActions: ['check', 'raw_check', 'transform'],
    overrideSchema: ({ jsonSchema }) =>
      jsonSchema.properties === undefined ? undefined : { ...jsonSchema, additionalProperties: false },
  })
  return { $schema, title: 'Configuration of kyc-tokend', ...rest }
}
