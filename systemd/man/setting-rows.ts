// The table of settings in the manual, made from the JSON Schema of the configuration file.
import { configJsonSchema } from '../../src/config/json-schema.ts'

interface SettingRow {
  /** Key path; `tokenFiles[].mode` is that of each entry. */
  readonly key: string
  /** The default as JSON; undefined: the setting is required. */
  readonly default: string | undefined
  readonly meaning: string
}

interface SchemaNode {
  readonly description?: string
  readonly default?: unknown
  readonly properties?: Record<string, SchemaNode>
  readonly items?: SchemaNode
  readonly anyOf?: readonly SchemaNode[]
}

/** Every setting with its default and meaning, in the order of the file. `http` has the keys of `ipc`. */
export function settingRows(): SettingRow[] {
  return rowsOf(configJsonSchema(), '')
}

function rowsOf(node: SchemaNode, prefix: string): SettingRow[] {
  return Object.entries(node.properties ?? {})
    .filter(([name]) => name !== '$schema')
    .flatMap(([name, child]) => rowsOfSetting(child, prefix === '' ? name : `${prefix}.${name}`))
}

function rowsOfSetting(node: SchemaNode, key: string): SettingRow[] {
  if (node.properties !== undefined) return rowsOf(node, key)
  // With blanks, at which a line of the manual can end.
  const standard = JSON.stringify(node.default, null, 1)?.replaceAll(/\n\s*/g, ' ')
  const row = { key, default: standard, meaning: node.description ?? '' }
  if (node.items?.properties !== undefined) return [row, ...rowsOf(node.items, `${key}[]`)]
  const sections = formsOf(node).filter(({ properties }) => properties !== undefined)
  return sections.length === 1 && key !== 'http' ? [row, ...rowsOf(sections[0]!, key)] : [row]
}

/** The forms that a value may have: null, false, a section. */
function formsOf({ anyOf = [] }: SchemaNode): SchemaNode[] {
  return anyOf.flatMap((form) => (form.anyOf === undefined ? form : formsOf(form)))
}
