// The JSON Schema of the configuration file, made from the schema when the program is built.
import { toJsonSchema } from '@valibot/to-json-schema'
import { isRecord } from '../lib/input.ts'
import { configSchema } from './schema.ts'

/** Draft 7, which editors know best. */
export function configJsonSchema(): Record<string, unknown> {
  const whole = toJsonSchema(configSchema(), {
    target: 'draft-07',
    ignoreActions: ['check', 'finite', 'raw_check', 'raw_transform', 'transform'],
    overrideSchema: ({ jsonSchema }) =>
      jsonSchema.properties === undefined ? undefined : { ...jsonSchema, additionalProperties: false },
  })
  const { $schema, $defs, ...rest } = whole
  return { $schema, title: 'Configuration of kyc-tokend', ...(inlined(rest, $defs ?? {}) as object) }
}

/** With each definition in its place: a section is a lazy schema, and has one. */
function inlined(node: unknown, definitions: Readonly<Record<string, unknown>>): unknown {
  if (Array.isArray(node)) return node.map((element) => inlined(element, definitions))
  if (!isRecord(node)) return node
  const { $ref, ...own } = node
  const named = typeof $ref === 'string' ? inlined(definitions[$ref.split('/').at(-1)!], definitions) : {}
  const fields = Object.entries(own).map(([name, value]) => [name, inlined(value, definitions)])
  return { ...(named as object), ...(Object.fromEntries(fields) as object) }
}
