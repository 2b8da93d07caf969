// The kinds of values that settings have, and the one place that makes a sentence of a fault of shape: from the
// facts of the issue, with the remedy, and never a value.
import * as v from 'valibot'
import { CONTROL_CHARACTER } from '../lib/display-text.ts'
import { DURATION, parseDuration, parseInstant } from '../lib/duration.ts'
import { isRecord } from '../lib/input.ts'
import { nearestName } from '../lib/nearest.ts'

type Schema = v.GenericSchema

/**
 * The schema, whose issues have a sentence: unless an inner kind has one. `shape` follows "must be", `limits`
 * follows "must" for a value of the right shape. `entries`: those of a section.
 */
function kind<T extends Schema>(
  schema: T,
  shape: string,
  { limits, entries = {} }: { limits?: string; entries?: v.ObjectEntries } = {},
): T {
  function message({ type, input, requirement, ...issue }: v.BaseIssue<unknown>): string {
    const missing = entries[String(issue.path?.at(-1)?.key)]
    if (missing !== undefined) return `is missing: it ${v.safeParse(missing, undefined).issues![0].message}`
    if (requirement === hasNoControl) return 'must not hold a control character: type it again, without one'
    if (requirement === hasNoTilde)
      return 'must not begin with "~", which only a shell expands: write the whole path, or "./~…"'
    if (type === 'max_length')
      return `must not have more than ${String(requirement)} ${Array.isArray(input) ? 'entries' : 'characters'}: shorten it`
    return type === 'check' && limits !== undefined ? `must ${limits}` : `must be ${shape}`
  }
  return v.config(schema, { message })
}

/** The kind in a word, with its range: `$comment` of the JSON Schema, and the type in the manual. */
const called = <T>(name: string) => v.metadata<T, { $comment: string }>({ $comment: name })

/** A setting that must be there. */
export function required<T extends Schema>(schema: T, description: string) {
  return v.pipe(schema, v.description(description))
}

/** A setting that may be left out, with its meaning and its default. */
export function setting<const T extends Schema, const D extends v.InferInput<T>>(
  schema: T,
  description: string,
  standard: D,
) {
  return v.optional(v.pipe(schema, v.description(description)), standard)
}

/** A setting that is null if it is left out. */
export function orNull<T extends Schema>(schema: T, description: string) {
  return v.optional(v.pipe(v.nullable(schema), v.description(description)), null)
}

/** A text of this form. */
export function formed(form: RegExp, shape: string, name = 'text') {
  return kind(v.pipe(v.string(), v.regex(form), called(name)), shape)
}

/** A text of this form that stands for a number, which has limits. */
function converted(
  form: RegExp,
  convert: (text: string) => number,
  isWithin: (value: number) => boolean,
  { name, shape, limits }: { name: string; shape: string; limits: string },
) {
  const schema = v.pipe(v.string(), v.regex(form), v.transform(convert), v.check(isWithin), called(name))
  return kind(schema, shape, { limits })
}

/** Milliseconds, written with their unit. */
export function duration(from: string, to: string) {
  const [least, most] = [parseDuration(from)!, parseDuration(to)!]
  const isWithin = (ms: number): boolean => ms >= least && ms <= most
  const shape = 'a duration with its unit, in quotes: write "500ms", "30s", "15m", "1h" or "1d"'
  const facts = { name: `duration, ${from} to ${to}`, shape, limits: `be from "${from}" to "${to}"` }
  return converted(DURATION, (text) => parseDuration(text) ?? Infinity, isWithin, facts)
}

/** A setting that is a duration in this range. */
export function span(description: string, [from, to]: [string, string], standard: string) {
  return setting(duration(from, to), `${description}; ${from} to ${to}.`, standard)
}

/** Permission bits: all of `needed`, none of `forbidden`. `limits` says which. */
export function mode(needed: number, forbidden: number, limits: string) {
  const isWithin = (bits: number): boolean => (bits & (needed | forbidden)) === needed
  const shape = 'permission bits as a string of octal digits: write "0600" or "0640", in quotes'
  const bitsOf = (digits: string): number => Number.parseInt(digits, 8)
  const facts = { name: 'mode', shape, limits: `let ${limits}` }
  return setting(converted(/^0?[0-7]{3}$/, bitsOf, isWithin, facts), 'Permission bits.', '0600')
}

const hasNoControl = (text: string): boolean => !CONTROL_CHARACTER.test(text)
const hasNoTilde = (text: string): boolean => !text.startsWith('~')

/** One line of text, not empty. */
export function line(maxLength: number, shape = 'a text that is not empty: write it in quotes') {
  return kind(v.pipe(v.string(), v.minLength(1), v.maxLength(maxLength), v.check(hasNoControl)), shape)
}

/** A path of at most PATH_MAX bytes. */
export function path() {
  const shape = 'a path that is not empty: write it in quotes'
  return kind(v.pipe(line(4096, shape), v.check(hasNoTilde), called('path')), shape)
}

/** `parse` gives undefined for a fault. */
export function parsed<T>(parse: (text: string) => T | undefined, shape: string, name: string) {
  const transform = v.rawTransform<string, T>(({ dataset, addIssue, NEVER }) => {
    const value = parse(dataset.value)
    if (value === undefined) addIssue()
    return value ?? NEVER
  })
  return kind(v.pipe(v.string(), transform, called(name)), shape)
}

/** Ms since the epoch. */
export function instant() {
  const shape = 'a date, or a date with time and zone: write it as "2027-03-01" or "2027-03-01T12:00:00Z"'
  return parsed(parseInstant, shape, 'date')
}

/** A URL. `problemOf` gives the whole sentence: there are several ways to be no such URL. */
export function url(problemOf: (text: string) => string | undefined, shape: string) {
  const check = v.rawCheck<string>(({ dataset, addIssue }) => {
    const message = dataset.typed ? problemOf(dataset.value) : undefined
    if (message !== undefined) addIssue({ message })
  })
  return kind(v.pipe(line(2048, shape), check, called('URL')), shape)
}

export function count(to: number, from = 1) {
  const schema = v.pipe(v.number(), v.integer(), v.minValue(from), v.maxValue(to))
  return kind(schema, `a whole number from ${from} to ${to}`)
}

export const flag = () => kind(v.boolean(), 'true or false, without quotes')

export function oneOf<const T extends readonly string[]>(choices: T) {
  return kind(v.picklist(choices), `one of ${choices.map((each) => `"${each}"`).join(', ')}`)
}

/** One of these; the first is the default. */
export function choice<const T extends readonly [string, ...string[]]>(choices: T, description: string) {
  return setting(oneOf(choices), description, choices[0])
}

/** A user or group by name or number: the largest id but one, because the largest means "none" to the kernel. */
export function account(of: 'user' | 'group') {
  const byName = v.pipe(v.string(), v.regex(/^(?!-)[^\s:,/\u0000-\u001f\u007f-\u009f]+$/))
  const schema = v.pipe(v.union([byName, count(2 ** 32 - 2, 0)]), called('name or number'))
  return kind(schema, `the name or the number of a ${of}`)
}

/** The forms of a secret source that name a place. */
function places() {
  const credential = v.pipe(v.string(), v.regex(/^(?!\.{1,2}$)[A-Za-z0-9._@:-]{1,255}$/))
  const env = v.pipe(v.string(), v.regex(/^[A-Za-z_][A-Za-z0-9_]*$/))
  return [
    v.strictObject({ file: required(path(), 'A file that holds the secret.') }),
    v.strictObject({ credential: required(credential, 'A systemd credential (`LoadCredential=`).') }),
    v.strictObject({ env: required(env, 'An environment variable.') }),
  ] as const
}

export function secretSource() {
  const forms = v.union([v.pipe(v.string(), v.minLength(1)), ...places()])
  const shape =
    'a secret source: write a string that is not empty, or exactly one of ' +
    '{ "file": PATH }, { "credential": NAME } and { "env": NAME }'
  return kind(v.pipe(forms, called('secret source')), shape)
}

/** Texts, numbers, true or false, and secret sources, by name. */
export function values() {
  const value = v.union([v.string(), v.pipe(v.number(), v.finite()), v.boolean(), ...places()])
  const shape = 'a text, a number, true, false, or a secret source such as { "file": PATH }'
  return record(kind(value, shape), '{ "name": "text" }')
}

/** Values by name. `example`: how it is written. */
export function record<T extends Schema>(value: T, example: string) {
  const schema = forObjects(() => v.record(v.string(), value))
  return kind(schema, `an object: write it as ${example}`)
}

/** An object with these settings alone. Every unknown key is a fault of its own, unlike those of `strictObject`. */
export function section<T extends v.ObjectEntries>(example: string, entries: T) {
  const schema = forObjects((document) => {
    const unknown = Object.keys(document).filter((key) => !Object.hasOwn(entries, key))
    const misfits = unknown.map((key) => [key, v.never(unknownKey(key, Object.keys(entries)))])
    return v.object({ ...(Object.fromEntries(misfits) as object), ...entries })
  })
  return kind(schema, `an object: write it as ${example}`, { entries })
}

function unknownKey(key: string, names: readonly string[]): string {
  const known = names.filter((each) => each !== '$schema')
  const near = nearestName(key, known)
  return `is an unknown key: ${near ? `did you mean "${near}"?` : `remove it; known here are ${known.join(', ')}`}`
}

/** valibot takes lists for objects, too. Without a document the schema is asked for its description. */
function forObjects<T extends Schema>(schemaOf: (document: Record<string, unknown>) => T) {
  return v.lazy((document): T => {
    if (document === undefined) return schemaOf({})
    return isRecord(document) ? schemaOf(document) : (v.never() as unknown as T)
  })
}

/** A section, or another value. A union would hide the faults in the section. */
export function sectionOr<T extends Schema, U extends Schema>(simple: T, whole: U, shape: string) {
  const either = v.union([simple, whole])
  return kind(
    v.lazy((value) => (isRecord(value) ? (whole as unknown as typeof either) : either)),
    shape,
  )
}

/** A section whose settings may all be left out. */
export function group<T extends v.ObjectEntries>(description: string, entries: T) {
  const schema = v.pipe(section('{ … }', entries), v.description(description))
  return v.optional(schema, {} as v.InferInput<typeof schema>)
}

export function list<T extends Schema>(element: T, shape = 'a list: write it as [ … ]', least = 0) {
  return kind(v.pipe(v.array(element), v.minLength(least), v.maxLength(64)), shape)
}
