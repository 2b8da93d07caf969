// The shape of a document against the schema: every fault at once, with its key path and its remedy, and no value.
import * as v from 'valibot'

import { keyPath, type ConfigIssue } from './issues.ts'
import { nearestName } from './nearest.ts'
import { configSchema, secretSettings } from './schema.ts'
import type { ValidPart } from './valid-part.ts'

interface Validation {
  readonly faults: readonly ConfigIssue[]
  /** The usable part of the document, with the defaults; undefined where there is none. */
  readonly validPart: ValidPart | undefined
}

/** The parts of a valibot schema that are walked through. */
interface SchemaNode {
  readonly type: string
  readonly entries?: Readonly<Record<string, SchemaNode>>
  readonly wrapped?: SchemaNode
  readonly item?: SchemaNode
  readonly options?: readonly SchemaNode[]
}
type Path = readonly PropertyKey[]

export function validateDocument(document: unknown): Validation {
  const faults: ConfigIssue[] = []
  const schema = configSchema()
  const root = schema as unknown as SchemaNode
  const known = withoutUnknown(document, { root, node: root, path: [], faults })
  const parse = (value: unknown) => v.safeParse(schema, value, { abortPipeEarly: true })
  const { issues: found = [], output } = parse(known)
  const issues = found.flatMap(innermost).map(withoutSecret)
  faults.push(...issues.map(({ path, message }) => ({ at: keyPath(path), sentence: message })))
  const faultyPaths = issues.filter(({ isMissing }) => !isMissing).map(({ path }) => path)
  const usable = faultyPaths.length === 0 ? output : parse(without(known, faultyPaths)).output
  return { faults, validPart: usable as ValidPart | undefined }
}

/** A copy without keys that no section knows. Keys of the prototype do not count; a list is no section. */
function withoutUnknown(
  value: unknown,
  context: { root: SchemaNode; node: SchemaNode; path: Path; faults: ConfigIssue[] },
): unknown {
  const { root, node, path, faults } = context
  const { entries, item } = structureOf(node)
  if (typeof value !== 'object' || value === null) return value
  if (item !== undefined && Array.isArray(value))
    return value.map((element: unknown, index) =>
      withoutUnknown(element, { ...context, node: item, path: [...path, index] }),
    )
  if (entries === undefined) return value
  if (Array.isArray(value)) return ''
  const kept: Record<string, unknown> = {}
  for (const [key, child] of Object.entries(value)) {
    const entry = Object.hasOwn(entries, key) ? entries[key] : undefined
    if (entry === undefined) faults.push(unknownKey(key, { root, path, names: Object.keys(entries) }))
    else kept[key] = withoutUnknown(child, { ...context, node: entry, path: [...path, key] })
  }
  return kept
}

/** The section or the list that a schema describes. Secret sources are strict objects, and walked by valibot alone. */
function structureOf(node: SchemaNode): Pick<SchemaNode, 'entries' | 'item'> {
  if (node.wrapped !== undefined) return structureOf(node.wrapped)
  if (node.type === 'union')
    return (node.options ?? []).map(structureOf).find(({ entries }) => entries !== undefined) ?? {}
  if (node.type === 'object' && node.entries !== undefined) return { entries: node.entries }
  return node.item === undefined ? {} : { item: node.item }
}

interface Issue {
  readonly path: Path
  readonly message: string
  readonly isMissing: boolean
}

/** Of the alternatives of a setting, an object means the section: its own faults are reported, not that none fits. */
function innermost(issue: v.BaseIssue<unknown>): Issue[] {
  const items = issue.path ?? []
  const path = items.map(({ key }) => key as PropertyKey)
  const within = (issue.issues ?? []).filter((inner) => inner.path !== undefined)
  if (typeof issue.input === 'object' && issue.input !== null && within.length > 0 && !isSecret(path))
    return within.flatMap(innermost).map((inner) => ({ ...inner, path: [...path, ...inner.path] }))
  return [{ path, message: issue.message, isMissing: items.at(-1)?.origin === 'key' }]
}

/** The fault of a secret source is reported of the setting: a key within may be the secret itself. */
function withoutSecret(issue: Issue): Issue {
  const setting = secretSettings.find((name) => `${keyPath(issue.path)}.`.startsWith(`${name}.`))
  return setting === undefined ? issue : { ...issue, path: setting.split('.') }
}

function isSecret(path: Path): boolean {
  return (secretSettings as readonly string[]).includes(keyPath(path))
}

function unknownKey(
  key: string,
  { root, path, names }: { root: SchemaNode; path: Path; names: readonly string[] },
): ConfigIssue {
  return { at: keyPath([...path, key]), sentence: `is an unknown key: ${meant(key, { root, names })}` }
}

function meant(key: string, { root, names }: { root: SchemaNode; names: readonly string[] }): string {
  const known = names.filter((name) => name !== '$schema')
  const near = nearestName(key, known)
  if (near !== undefined) return `did you mean "${near}"?`
  const elsewhere = keyPathsOf(root, '').find((name) => name.toLowerCase().endsWith(`.${key.toLowerCase()}`))
  if (elsewhere !== undefined) return `did you mean "${elsewhere}"?`
  return `remove it; known here are ${known.join(', ')}`
}

function keyPathsOf(node: SchemaNode, prefix: string): string[] {
  const { entries, item } = structureOf(node)
  if (item !== undefined) return keyPathsOf(item, `${prefix}[]`)
  return Object.entries(entries ?? {}).flatMap(([name, child]) => {
    const path = prefix === '' ? name : `${prefix}.${name}`
    return [path, ...keyPathsOf(child, path)]
  })
}

/** A copy without what is at these paths. */
function without(node: unknown, paths: readonly Path[]): unknown {
  if (paths.some((path) => path.length === 0)) return undefined
  if (paths.length === 0 || typeof node !== 'object' || node === null) return node
  const below = (key: PropertyKey): PropertyKey[][] =>
    paths.filter((path) => String(path[0]) === String(key)).map((path) => path.slice(1))
  if (Array.isArray(node)) return node.map((element, index) => without(element, below(index)))
  return Object.fromEntries(Object.entries(node).map(([key, child]) => [key, without(child, below(key))]))
}
