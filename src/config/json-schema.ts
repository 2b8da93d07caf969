// The JSON Schema of the configuration file, made from the schema when the program is built.
import { toJsonSchema } from '@valibot/to-json-schema'
import type { GenericSchema, LazySchema } from 'valibot'
import { configSchema } from './schema.ts'

/** Draft 7, which editors know best. */
export function configJsonSchema(): Record<string, unknown> {
  const { $schema, ...rest } = inlined(configSchema())
  return { $schema, title: 'Configuration of kyc-tokend', ...rest }
}

/** With each definition in its place: a section is a lazy schema, and would have one. */
function inlined(schema: GenericSchema): Record<string, unknown> {
  const { $defs: _, ...rest } = toJsonSchema(schema, {
    target: 'draft-07',
    ignoreActions: ['check', 'finite', 'raw_check', 'raw_transform', 'transform'],
    overrideSchema({ valibotSchema, jsonSchema }) {
      if (valibotSchema.type !== 'lazy')
        return jsonSchema.properties && { ...jsonSchema, additionalProperties: false }
      const { $schema: _of, ...section } = inlined(
        (valibotSchema as LazySchema<GenericSchema>).getter(undefined),
      )
      return section
    },
  })
  return rest
}
