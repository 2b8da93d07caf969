// The kinds of values that settings have, each with its sentence.
import * as v from 'valibot'
import { CONTROL_CHARACTER } from '../lib/display-text.ts'
import { DURATION, parseDuration, parseInstant } from '../lib/duration.ts'
import { isRecord } from '../lib/input.ts'
import { nearestName } from './nearest.ts'

// Every message is our own: valibot's quote the value, which may be a secret.

/** A setting that must be there. */
export function required<T extends v.GenericSchema>(schema: T, description: string) {
  return v.pipe(schema, v.description(description))
}

/** A setting that may be left out, with its meaning and its default. */
export function setting<const T extends v.GenericSchema, const D extends v.InferInput<T>>(
  schema: T,
  description: string,
  standard: D,
) {
  return v.optional(v.pipe(schema, v.description(description)), standard)
}

/** A setting that is null if it is left out. */
export function orNull<T extends v.GenericSchema>(schema: T, description: string) {
  return v.optional(v.pipe(v.nullable(schema), v.description(description)), null)
}

/** What kind of value it is, with its range: the manual has it, and `$comment` of the JSON Schema. */
export function valueKind<T>(name: string) {
  return v.metadata<T, { $comment: string }>({ $comment: name })
}

/** Milliseconds, written with their unit. */
export function duration(from: string, to: string) {
  const shape = 'must be a duration with its unit, in quotes: write "500ms", "30s", "15m", "1h" or "1d"'
  const [least, most] = [parseDuration(from)!, parseDuration(to)!]
  return v.pipe(
    formed(DURATION, shape),
    v.transform((text) => parseDuration(text) ?? Infinity),
    v.check((ms) => ms >= least && ms <= most, `must be from "${from}" to "${to}"`),
    valueKind(`duration, ${from} to ${to}`),
  )
}

/** A setting that is a duration in this range, which its description names. */
export function span(description: string, [from, to]: [string, string], standard: string) {
  return setting(duration(from, to), `${description}; ${from} to ${to}.`, standard)
}

/** Permission bits as octal digits: all of `required`, none of `forbidden`. `sentence` says which. */
export function octal(bits: { required: number; forbidden?: number }, sentence: string) {
  const shape = 'must be permission bits as a string of octal digits: write "0600" or "0640", in quotes'
  const mask = bits.required | (bits.forbidden ?? 0)
  return v.pipe(
    formed(/^0?[0-7]{3}$/, shape),
    v.transform((digits) => Number.parseInt(digits, 8)),
    v.check((mode) => (mode & mask) === bits.required, sentence),
    valueKind('mode'),
  )
}

/** PATH_MAX of Linux. */
const MAX_PATH_LENGTH = 4096

export function path(sentence = 'must be a path that is not empty: write it in quotes') {
  return v.pipe(
    line(MAX_PATH_LENGTH, sentence),
    v.check(
      (value) => !value.startsWith('~'),
      'must not begin with "~", which only a shell expands: ' +
        'write the whole path, or "./~…" for that very name',
    ),
    valueKind('path'),
  )
}

/** A text of this form. */
export function formed(form: RegExp, sentence: string) {
  return v.pipe(v.string(sentence), v.regex(form, sentence))
}

/** One line of text. */
export function line(maxLength: number, sentence = 'must be a text that is not empty: write it in quotes') {
  return v.pipe(
    v.string(sentence),
    v.minLength(1, sentence),
    v.maxLength(maxLength, `must not be longer than ${maxLength} characters: shorten it`),
    v.check(
      (value) => !CONTROL_CHARACTER.test(value),
      'must not hold a control character: type it again, without one',
    ),
  )
}

/** A name that is not empty. `example`: how it is written. */
export function fieldName(example = 'client_id') {
  return line(255, `must be a name that is not empty: write it as "${example}"`)
}

/** Ms since the epoch, written as a date with time and zone, or as a date (the end of that day in UTC). */
export function instant() {
  const shape =
    'must be a date, or a date with time and zone: write it as "2027-03-01" or "2027-03-01T12:00:00Z"'
  return v.pipe(transformed(parseInstant, shape), valueKind('date'))
}

/** What `parse` makes of a text; undefined is a fault. */
export function transformed<T>(parse: (text: string) => T | undefined, sentence: string) {
  return v.pipe(
    v.string(sentence),
    v.rawTransform<string, T>(({ dataset, addIssue, NEVER }) => {
      const value = parse(dataset.value)
      if (value === undefined) addIssue({ message: sentence })
      return value ?? NEVER
    }),
  )
}

/** A check that gives the sentence of the fault. */
export function rawCheck(problemOf: (value: string) => string | undefined) {
  return v.rawCheck<string>(({ dataset, addIssue }) => {
    const message = dataset.typed ? problemOf(dataset.value) : undefined
    if (message !== undefined) addIssue({ message })
  })
}

const VALUE_SHAPE = 'must be a text, a number, true, false, or a secret source such as { "file": PATH }'

/** Texts, numbers, true or false, and secret sources, by name. */
export function values() {
  const sentence = `must be an object: write it as { "name": "text" }, and each value ${VALUE_SHAPE}`
  const texts = [v.string(), v.pipe(v.number(), v.finite(VALUE_SHAPE)), v.boolean()] as const
  const value = v.union([...texts, ...sourceObjects()], VALUE_SHAPE)
  return forObjects(() => v.record(v.string(), value, sentence), sentence)
}

/** Any values of JSON by name. */
export function objectOf(example: string) {
  const sentence = `must be an object: write it as ${example}`
  return forObjects(() => v.record(v.string(), v.unknown(), sentence), sentence)
}

export function count(to: number, from = 1, sentence = `must be a whole number from ${from} to ${to}`) {
  return v.pipe(v.number(sentence), v.integer(sentence), v.minValue(from, sentence), v.maxValue(to, sentence))
}

/** The largest id but one: the largest means "none" to the kernel. */
const MAX_ID = 2 ** 32 - 2

export function account(kind: 'user' | 'group') {
  const sentence = `must be the name or the number of a ${kind}`
  const name = formed(/^(?!-)[^\s:,/\u0000-\u001f\u007f-\u009f]+$/, sentence)
  return v.pipe(v.union([name, count(MAX_ID, 0, sentence)], sentence), valueKind('name or number'))
}

export function oneOf<const T extends readonly string[]>(choices: T) {
  return v.picklist(choices, `must be one of ${choices.map((choice) => `"${choice}"`).join(', ')}`)
}

const SECRET_SHAPE =
  'must be a secret source: write a string that is not empty, or exactly one of ' +
  '{ "file": PATH }, { "credential": NAME } and { "env": NAME }'

export function secretSource() {
  const text = v.pipe(v.string(SECRET_SHAPE), v.minLength(1, SECRET_SHAPE))
  return v.pipe(v.union([text, ...sourceObjects()], SECRET_SHAPE), valueKind('secret source'))
}

/** The forms of a secret source that name a place. */
function sourceObjects() {
  const file = required(path(SECRET_SHAPE), 'A file that holds the secret.')
  const credential = required(
    formed(/^(?!\.{1,2}$)[A-Za-z0-9._@:-]{1,255}$/, SECRET_SHAPE),
    'Name of a systemd credential (`LoadCredential=`).',
  )
  const env = required(formed(/^[A-Za-z_][A-Za-z0-9_]*$/, SECRET_SHAPE), 'Name of an environment variable.')
  return [
    v.strictObject({ file }, SECRET_SHAPE),
    v.strictObject({ credential }, SECRET_SHAPE),
    v.strictObject({ env }, SECRET_SHAPE),
  ] as const
}

export function flag() {
  return v.boolean('must be true or false, without quotes')
}

/**
 * A schema for objects alone: valibot takes lists for objects, too. `schemaOf` gets the object; with
 * `undefined`, which no document holds, the schema is asked for its JSON Schema.
 */
function forObjects<T extends v.GenericSchema>(
  schemaOf: (document: Readonly<Record<string, unknown>>) => T,
  sentence: string,
) {
  return v.lazy((document): T => {
    if (document === undefined) return schemaOf({})
    // Copied, such a key would change the prototype of the copy.
    if (isRecord(document) && Object.hasOwn(document, '__proto__'))
      return v.never('must not have the key "__proto__": remove it') as unknown as T
    return isRecord(document) ? schemaOf(document) : (v.never(sentence) as unknown as T)
  })
}

/** An object with these settings alone. Every key that is unknown or missing is a fault of its own. */
export function section<T extends v.ObjectEntries>(entries: T, written = '{ … }') {
  const sentence = `must be an object: write it as ${written}`
  /** For a missing key: what its own schema says of nothing. */
  const message = (issue: Pick<v.BaseIssue<unknown>, 'path'>): string => {
    const missing = entries[String(issue.path?.at(-1)?.key)]
    return missing === undefined
      ? sentence
      : `is missing: it ${v.safeParse(missing, undefined).issues![0].message}`
  }
  return forObjects((document) => {
    // `strictObject` reports the first unknown key alone: here each has a schema that nothing fits.
    const unknown = Object.keys(document).filter((key) => !Object.hasOwn(entries, key))
    const misfits = unknown.map((key) => {
      return [key, v.never(`is an unknown key: ${meant(key, Object.keys(entries))}`)]
    })
    return v.object({ ...(Object.fromEntries(misfits) as object), ...entries }, message)
  }, sentence)
}

function meant(key: string, names: readonly string[]): string {
  const known = names.filter((name) => name !== '$schema')
  const near = nearestName(key, known)
  return near === undefined ? `remove it; known here are ${known.join(', ')}` : `did you mean "${near}"?`
}

/** A section, or another value. A union alone would hide the faults in the section. */
export function sectionOr<T extends v.GenericSchema, U extends v.GenericSchema>(
  simple: T,
  whole: U,
  sentence: string,
) {
  const either = v.union([simple, whole], sentence)
  return v.lazy((document) => (isRecord(document) ? (whole as unknown as typeof either) : either))
}

/** A section whose settings may all be left out. */
export function group<T extends v.ObjectEntries>(description: string, entries: T) {
  const schema = v.pipe(section(entries), v.description(description))
  return v.optional(schema, {} as v.InferInput<typeof schema>)
}

const LIST_SHAPE = 'must be a list: write it as [ … ]'

export function list<T extends v.GenericSchema>(element: T, sentence = LIST_SHAPE) {
  return v.pipe(v.array(element, sentence), v.maxLength(64, 'has more than 64 entries: leave some out'))
}
