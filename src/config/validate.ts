// The shape of a document against the schema: one walk finds every fault, with its key path and its remedy, and no value.
import * as v from 'valibot'
import { isRecord } from '../lib/input.ts'
import { keyPath, type ConfigIssue } from './issues.ts'
import { nearestName } from './nearest.ts'
import { configSchema, type ConfigInput, type Settings } from './schema.ts'

/** The settings without the values that were found faulty: a required one, or an element of a list, may be missing. */
export type ValidPart = Usable<Settings, ConfigInput>
export type SecretSource = Settings['credentials']['apiKey']

/**
 * The usable part of `Out`, which the schema makes of `In`: a setting without a default may be missing. A value that can be written
 * as a text, a secret source too, is whole or missing.
 */
type Usable<Out, In> = string extends In
  ? Out
  : {
      readonly [Key in keyof Out]: Usable<Out[Key], InputAt<In, Key>> | UndefinedIfRequired<InputAt<In, Key>>
    }
/** A setting that may be left out has a default. */
type UndefinedIfRequired<In> = undefined extends In ? never : undefined
type InputAt<In, Key> = In extends object ? (Key extends keyof In ? In[Key] : never) : never

/** The parts of a valibot schema that are walked through. */
interface SchemaNode {
  readonly type: string
  readonly entries?: Entries
  readonly wrapped?: SchemaNode
  readonly default?: unknown
  readonly item?: SchemaNode
  readonly value?: SchemaNode
  readonly options?: readonly SchemaNode[]
}
type Entries = Readonly<Record<string, SchemaNode>>
type Path = readonly PropertyKey[]

/** `validPart` is the usable part of the document, with the defaults; undefined if there is none. */
export function validateDocument(document: unknown) {
  const faults: ConfigIssue[] = []
  const fault = (path: Path, sentence: string): undefined => {
    faults.push({ at: keyPath(path), sentence })
  }

  /** The value as the schema makes it; undefined if it is faulty. */
  function walk(node: SchemaNode, value: unknown, path: Path): unknown {
    const { wrapped, type, item, value: element } = node
    if (type === 'optional') {
      const part = value === undefined ? undefined : walk(wrapped!, value, path)
      return part === undefined && node.default !== undefined ? walk(wrapped!, node.default, path) : part
    }
    if (wrapped !== undefined) return value === null ? null : walk(wrapped, value, path)
    // If a setting has several forms, an object means the section. Secret sources are no sections.
    const { entries } = unwrapped(node)
    if (isRecord(value) && entries !== undefined) return walkSection(entries, value, path)
    const sentence = ownFault(node, value)
    if (sentence !== undefined) return fault(path, sentence)
    if (Array.isArray(value) && item !== undefined)
      return value.map((child: unknown, index) => walk(item, child, [...path, index]))
    if (isRecord(value) && element !== undefined)
      return Object.fromEntries(
        Object.entries(value).map(([key, child]) => [key, walk(element, child, [...path, key])]),
      )
    return v.safeParse(node as unknown as v.GenericSchema, value).output
  }

  function walkSection(entries: Entries, section: Readonly<Record<string, unknown>>, path: Path): object {
    for (const key of Object.keys(section))
      // Keys of the prototype are unknown, too.
      if (!Object.hasOwn(entries, key))
        fault([...path, key], `is an unknown key: ${meant(key, Object.keys(entries))}`)
    const parts = Object.entries(entries).map(([key, node]) => {
      const at = [...path, key]
      const value = Object.hasOwn(section, key) ? section[key] : undefined
      if (value !== undefined || node.type === 'optional') return [key, walk(node, value, at)]
      return [key, fault(at, `is missing: it ${ownFault(node, undefined)}`)]
    })
    return Object.fromEntries(parts) as object
  }

  const validPart = walk(configSchema() as unknown as SchemaNode, document, []) as ValidPart | undefined
  return { faults, validPart }
}

/** The sentence about a value itself, not about what is in it. */
function ownFault(node: SchemaNode, value: unknown): string | undefined {
  const isContainer = node.item !== undefined || node.value !== undefined
  // The schema takes a list for an object whose settings are all left out.
  const isListForObject = Array.isArray(value) && (unwrapped(node).entries ?? node.value) !== undefined
  const tried = isListForObject ? '' : value
  const { issues } = v.safeParse(node as unknown as v.GenericSchema, tried)
  return issues?.find(({ path }) => !isContainer || path === undefined)?.message
}

/** The section or the list that a schema describes. */
function unwrapped(node: SchemaNode): SchemaNode {
  if (node.wrapped !== undefined) return unwrapped(node.wrapped)
  return node.options?.find(({ type }) => type === 'object') ?? node
}

function meant(key: string, names: readonly string[]): string {
  const known = names.filter((name) => name !== '$schema')
  const near = nearestName(key, known)
  return near === undefined ? `remove it; known here are ${known.join(', ')}` : `did you mean "${near}"?`
}
