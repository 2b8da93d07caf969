// The kinds of values that settings have, and the one place that makes a sentence of a fault of shape: with the
// remedy, and never with a value. Some kinds name what has to be looked up, such as a secret.
import * as v from 'valibot'
import { idOf, type IdKind } from '../host/ids.ts'
import { CONTROL_CHARACTER } from '../lib/display-text.ts'
import { DURATION, parseDuration, parseInstant } from '../lib/duration.ts'
import { isRecord, nearestName } from '../lib/input.ts'
import type { Inputs } from './secrets.ts'

type Schema = v.GenericSchema

/** Gets what a setting names. `at` is the key path of the setting, for a fault. */
export type Lookup<T> = (inputs: Inputs, at: string) => T | Promise<T>

/** The schema, all of whose faults have this sentence, unless an inner kind has one. */
function kind<T extends Schema>(schema: T, shape: string): T {
  return v.config(schema, { message: `must be ${shape}` })
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

/** A text of which this is true. */
function checked(isGood: (text: string) => boolean, shape: string, name = 'text') {
  return kind(v.pipe(v.string(), v.check(isGood), called(name)), shape)
}

/** A text that stands for another value. `parse` gives undefined for a fault. */
export function parsed<T>(parse: (text: string) => T | undefined, shape: string, name: string) {
  const transform = v.rawTransform<string, T>(({ dataset, addIssue, NEVER }) => {
    const value = parse(dataset.value)
    if (value === undefined) addIssue()
    return value ?? NEVER
  })
  return kind(v.pipe(v.string(), transform, called(name)), shape)
}

/** Milliseconds, written with their unit. */
export function duration(from: string, to: string) {
  const [least, most] = [parseDuration(from)!, parseDuration(to)!]
  const ms = v.transform((given: string) => parseDuration(given) ?? Infinity)
  const isWithin = v.check((given: number) => given >= least && given <= most)
  const schema = v.pipe(v.string(), v.regex(DURATION), called(`duration, ${from} to ${to}`), ms, isWithin)
  return kind(schema, `a duration from "${from}" to "${to}": write it in quotes, with ms, s, m, h or d`)
}

/** A setting that is a duration in this range. */
export function span(description: string, [from, to]: [string, string], standard: string) {
  return setting(duration(from, to), `${description}; ${from} to ${to}.`, standard)
}

/** Permission bits: all of `needed`, none of `forbidden`. `shape` says which. */
export function mode(needed: number, forbidden: number, shape: string) {
  const bits = v.transform((digits: string) => Number.parseInt(digits, 8))
  const isAllowed = v.check((given: number) => (given & (needed | forbidden)) === needed)
  const schema = v.pipe(v.string(), v.regex(/^0?[0-7]{3}$/), called('mode'), bits, isAllowed)
  return setting(kind(schema, shape), 'Permission bits.', '0600')
}

/** One line of text, not empty. */
export function line(maxLength: number, what = 'text') {
  const isPlain = v.check((text: string) => !CONTROL_CHARACTER.test(text))
  const schema = v.pipe(v.string(), v.minLength(1), v.maxLength(maxLength), isPlain)
  return kind(
    schema,
    `a ${what} of 1 to ${maxLength} characters, without control characters: write it in quotes`,
  )
}

/** A path of at most PATH_MAX bytes. */
export function path() {
  return v.pipe(line(4096, 'path'), called('path'))
}

/** Ms since the epoch. */
export function instant() {
  const shape = 'a date, or a date with time and zone: write it as "2027-03-01" or "2027-03-01T12:00:00Z"'
  return parsed(parseInstant, shape, 'date')
}

const SECURE = 'an https URL (http for a loopback host) without user and password'
/** The form of each URL, and its words with the remedy. */
const urls = {
  base: [/^https?:\/\/[^\s\\?#]{1,2000}$/i, `${SECURE}, "?" and "#": write it as "https://api.example.com"`],
  // A path (and query) after the base URL, or a whole URL.
  token: [
    /^(?:https?:\/\/|\/(?!\/))[^\s\\#]{0,2000}$/i,
    `a path, or ${SECURE} and "#": write it as "/token"`,
  ],
  proxy: [
    /^https?:\/\/[^\s\\/?#]{1,2000}\/?$/i,
    'the URL of a proxy, with user and password beside it: write it as "http://proxy.example.com:3128"',
  ],
} as const

/** Why the text cannot be this URL, with the remedy. Never quotes it: it may hold a password. */
export function urlProblem(text: string, name: keyof typeof urls): string | undefined {
  const [form, shape] = urls[name]
  // A path has the host of the base URL.
  const found = form.test(text) ? URL.parse(text, 'https://host') : null
  const { protocol, hostname, username, password } = found ?? {}
  const isSecure = name === 'proxy' || protocol === 'https:' || isLoopbackHost(hostname ?? '')
  return isSecure && username === '' && password === '' ? undefined : `must be ${shape}`
}

export function url(name: keyof typeof urls) {
  return checked((text) => urlProblem(text, name) === undefined, urls[name][1], 'URL')
}

/** Reports whether a URL's host (IPv6 with or without brackets) is loopback: only there HTTP keeps a secret. */
export function isLoopbackHost(hostname: string): boolean {
  return /^(?:localhost|127(?:\.\d{1,3}){3}|::1|\[::1\])$/i.test(hostname)
}

/** The name of a header (RFC 9110, section 5.1), but of none that HTTP decides or the daemon sets. */
export const HEADER_NAME =
  /^(?!(?:host|connection|(?:content|proxy)-.*|(?:transfer|accept)-encoding|expect|te|trailer|upgrade)$)[\w!#$%&'*+.^`|~-]{1,255}$/i

export function headerName() {
  const shape = 'the name of a header, and not of one that HTTP itself decides: write it as "X-Client"'
  return checked((text) => HEADER_NAME.test(text), shape)
}

/** `hint`: what takes the place of a value that is gone since 2.x. */
export function count(to: number, from = 1, hint = '') {
  const schema = v.pipe(v.number(), v.integer(), v.minValue(from), v.maxValue(to))
  return kind(schema, `a whole number from ${from} to ${to}${hint}`)
}

export const flag = () => kind(v.boolean(), 'true or false, without quotes')

/** `hint`: as above. */
export function oneOf<const T extends readonly string[]>(choices: T, hint = '') {
  return kind(v.picklist(choices), `one of ${choices.map((each) => `"${each}"`).join(', ')}${hint}`)
}

/** One of these; the first is the default. */
export function choice<const T extends readonly [string, ...string[]]>(choices: T, description: string) {
  return setting(oneOf(choices), description, choices[0])
}

export function list<T extends Schema>(element: T, least = 0) {
  const schema = v.pipe(v.array(element), v.minLength(least), v.maxLength(64))
  return kind(schema, `a list of ${least} to 64: write it as [ … ]`)
}

/** Values by name; `name`: the kind of the names. */
export function record<T extends Schema>(value: T, name: v.GenericSchema<string, string> = v.string()) {
  const schema = forObjects(() => v.record(name, value))
  return kind(schema, 'an object: write it as { "name": … }')
}

/** An object with these settings alone. Every unknown key is a fault of its own, unlike those of `strictObject`. */
export function section<T extends v.ObjectEntries>(example: string, entries: T) {
  const schema = forObjects((document) => {
    const unknown = Object.keys(document).filter((key) => !Object.hasOwn(entries, key))
    const misfits = unknown.map((key) => [key, v.never(unknownKey(key, Object.keys(entries)))])
    return v.object({ ...(Object.fromEntries(misfits) as object), ...entries })
  })
  function message({ path: at }: v.BaseIssue<unknown>): string {
    const missing = entries[String(at?.at(-1)?.key)]
    if (missing === undefined) return `must be an object: write it as ${example}`
    return `is missing: it ${v.safeParse(missing, undefined).issues![0].message}`
  }
  return v.config(schema, { message })
}

function unknownKey(key: string, names: readonly string[]): string {
  const known = names.filter((each) => each !== '$schema')
  const near = nearestName(key, known)
  return `is an unknown key: ${near ? `did you mean "${near}"?` : `remove it; known here are ${known.join(', ')}`}`
}

/** valibot takes lists for objects, too. Without a document the schema is asked for its description. */
function forObjects<T extends Schema>(schemaOf: (document: Record<string, unknown>) => T) {
  return v.lazy((document: unknown = {}) => {
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

/** A value that names something, and `read`, which gets that when the configuration is loaded. */
function naming<G, T>(
  schema: v.GenericSchema<G>,
  read: (named: G, inputs: Inputs, at: string) => T | Promise<T>,
) {
  const lookup = (named: G): Lookup<T> => {
    return (inputs, at) => read(named, inputs, at)
  }
  return v.pipe(schema, v.transform(lookup))
}

/** The path of an input, relative to the configuration file; it becomes absolute. */
export const inputPath = () => naming(path(), (named, { pathOf }) => pathOf(named))

/** The path of certificates in PEM; it becomes their text. */
export const certificates = () => naming(path(), (named, inputs, at) => inputs.certificates(at, named))

export const secretSource = () => naming(source(), (named, inputs, at) => inputs.secret(at, named))

/** The source of a private key in PEM or as a JWK. */
export const privateKey = () => naming(source(), (named, inputs, at) => inputs.privateKey(at, named))

/** A secret, or the place that holds it. */
function source() {
  const forms = v.union([v.pipe(v.string(), v.minLength(1)), ...places()])
  const shape =
    'a secret source: write a string that is not empty, or exactly one of ' +
    '{ "file": PATH }, { "credential": NAME } and { "env": NAME }'
  return v.pipe(kind(forms, shape), called('secret source'))
}

function places() {
  const credential = v.pipe(v.string(), v.regex(/^(?!\.{1,2}$)[A-Za-z0-9._@:-]{1,255}$/))
  const env = v.pipe(v.string(), v.regex(/^[A-Za-z_][A-Za-z0-9_]*$/))
  return [
    v.strictObject({ file: required(path(), 'A file that holds the secret.') }),
    v.strictObject({ credential: required(credential, 'A systemd credential (`LoadCredential=`).') }),
    v.strictObject({ env: required(env, 'An environment variable.') }),
  ] as const
}

/** Texts, numbers, true or false, and secret sources, by name. */
export function values(name?: v.GenericSchema<string, string>) {
  const value = v.union([v.string(), v.pipe(v.number(), v.finite()), v.boolean(), ...places()])
  const shape = 'a text, a number, true, false, or a secret source such as { "file": PATH }'
  const named = naming(kind(value, shape), async (given, inputs, at) =>
    typeof given === 'object' ? inputs.secret(at, given) : given,
  )
  return record(named, name)
}

/** A user or group by name or number; it becomes its id. The largest number means "none" to the kernel. */
export function account(of: IdKind) {
  const byName = v.pipe(v.string(), v.regex(/^(?!-)[^\s:,/\u0000-\u001f\u007f-\u009f]+$/))
  const either = kind(v.union([byName, count(2 ** 32 - 2, 0)]), `the name or the number of a ${of}`)
  return naming(v.pipe(either, called('name or number')), async (named, { fault }, at) => {
    const id = idOf(of, named)
    const make = `make it (${of}add --system ${named}), or give the number of one that a directory service knows`
    if (id === undefined) fault(at, `there is no ${of} ${named} on this host: ${make}`)
    return id ?? -1
  })
}
