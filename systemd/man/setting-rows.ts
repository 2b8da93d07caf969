// The settings in the manual, made from the JSON Schema of the configuration file.
import { configJsonSchema } from '../../src/config/json-schema.ts'
import { wrap } from '../../src/lib/display-text.ts'

/** A line in a pager of 80 columns. */
const WIDTH = 71
/** A longer default is not shown: the example all-settings.yaml has it. */
const MAX_DEFAULT_LENGTH = 60

export interface SettingRow {
  /** Key path; `tokenFiles[].mode` is that of each entry. */
  readonly key: string
  /** Markdown: what the value is, with its range. */
  readonly type: string
  /** The default as JSON; undefined: the setting is required. */
  readonly default: string | undefined
  readonly meaning: string
}

interface SchemaNode {
  readonly $comment?: string
  readonly type?: string
  readonly const?: unknown
  readonly enum?: readonly string[]
  readonly minimum?: number
  readonly maximum?: number
  readonly maxLength?: number
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

/** Every setting as text, a level deeper in each section: its type, its default and its meaning. */
export function settingsOutline(): string[] {
  const rows = settingRows()
  const opened = new Set<string>()
  return rows.flatMap(({ key, type, default: standard = 'required', meaning }) => {
    const shown = standard.length > MAX_DEFAULT_LENGTH ? '…' : standard
    // A range and the default say as much.
    const kind = type.replace(/(?:duration|integer), /, '')
    const facts = standard === 'null' ? kind : `${kind}; ${shown}`
    const text = `${key.split('.').at(-1)} (${facts}): ${meaning}`.replaceAll('`', '')
    return [...sectionsToOpen(key, rows, opened), hanging(text, '  '.repeat(depthOf(key)))]
  })
}

/** The text in lines for a pager, of which the first is indented least. */
export function hanging(text: string, indent = ''): string {
  return wrap(text, WIDTH - 4 - indent.length)
    .map((line, index) => `${indent}${index === 0 ? '' : '    '}${line}`)
    .join('\n')
}

export const depthOf = (key: string): number => key.split('.').length - 1

/** The sections of a setting that have no row and are not opened yet, each indented, from the outermost. Opens them. */
export function sectionsToOpen(key: string, rows: readonly SettingRow[], opened: Set<string>): string[] {
  const names = key.split('.').slice(0, -1)
  return names.flatMap((name, depth) => {
    const section = names.slice(0, depth + 1).join('.')
    if (opened.has(section) || rows.some((row) => row.key === section.replace('[]', ''))) return []
    opened.add(section)
    return [`${'  '.repeat(depth)}${name}`]
  })
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
  const row = { key, type: typeOf(node), default: standard, meaning: meaningOf(node) }
  if (node.items?.properties !== undefined) return [row, ...rowsOf(node.items, `${key}[]`)]
  const sections = formsOf(node).filter(({ properties }) => properties !== undefined)
  return sections.length === 1 && key !== 'http' ? [row, ...rowsOf(sections[0]!, key)] : [row]
}

/** Without the range and the kind, which the type has. */
function meaningOf({ description = '' }: SchemaNode): string {
  return description.replace(/; \S+ to \S+?(?: each)?(?=\.(?: |$))|: a secret source(?=[.;])/, '')
}

/** `null` is not said: it is the default of a setting that may be null, or the meaning says when it may be. */
function typeOf(node: SchemaNode): string {
  const { $comment: kind, const: constant, enum: choices, type, minimum, maximum, maxLength } = node
  if (kind !== undefined) return kind
  if (constant !== undefined) return `\`${JSON.stringify(constant)}\``
  if (choices !== undefined) return choices.map((choice) => `\`${choice}\``).join(', ')
  if (node.items !== undefined) return `list: ${typeOf(node.items)}`
  if (type === 'integer' || minimum !== undefined) return `integer, ${minimum} to ${maximum}`
  if (type === 'string')
    return maxLength === undefined || maxLength === 255 ? 'text' : `text, 1 to ${maxLength} characters`
  if (type !== undefined) return type
  const forms = formsOf(node).filter((form) => form.type !== 'null')
  return [...new Set(forms.map(typeOf))].join(' or ')
}

/** The forms that a value may have: null, false, a section. */
function formsOf({ anyOf = [] }: SchemaNode): SchemaNode[] {
  return anyOf.flatMap((form) =>
    form.anyOf === undefined || form.$comment !== undefined ? form : formsOf(form),
  )
}
