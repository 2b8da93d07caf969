// An answer of the service as it came, and what can be read in it. No value of it is shown, only names.
import { isRecord, parseJson } from '../lib/input.ts'
import { oneLine } from './detail.ts'

/** Longest body that is read, in bytes. */
export const MAX_BODY_BYTES = 64 * 1024

/** An answer as it came. */
export interface ServiceResponse {
  readonly status: number
  /** By lower-case name. */
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
  readonly body: Uint8Array
  /** The body was longer than MAX_BODY_BYTES, and the rest of it was not read. */
  readonly isCut?: boolean
}

export type Fields = Readonly<Record<string, unknown>>

export interface Content {
  /** Its fields, if it is a JSON object. */
  readonly fields?: Fields
  /** The whole of it. */
  readonly text: string
  /** Describes it in words. */
  readonly inWords: string
}

export function contentOf({ headers, body, isCut }: ServiceResponse): Content {
  const coding = headers['content-encoding']
  if (isCut === true || body.length > MAX_BODY_BYTES) return { text: '', inWords: 'longer than 64 KiB' }
  if (coding !== undefined && coding !== '' && coding !== 'identity')
    return { text: '', inWords: 'compressed' }
  const text = new TextDecoder().decode(body)
  const value = parseJson(text)
  if (isRecord(value)) return { fields: value, text, inWords: 'a JSON object' }
  if (value !== undefined) return { text, inWords: 'JSON, but no object' }
  return { text, inWords: text.trim() === '' ? 'empty' : 'not JSON' }
}

export function valueAt(fields: Fields, path: readonly string[]): unknown {
  return path.reduce<unknown>(
    (value, name) => (isRecord(value) && Object.hasOwn(value, name) ? value[name] : undefined),
    fields,
  )
}

/** The text at this path; undefined if there is none. */
export function textAt({ fields = {} }: Content, path: readonly string[]): string | undefined {
  const value = valueAt(fields, path)
  return typeof value === 'string' ? value : undefined
}

/** The words by which an answer may refuse; a number, true or false are words, too: a code may say it all. */
export function wordsAt({ fields = {} }: Content, path: readonly string[]): string | undefined {
  const value = valueAt(fields, path)
  return ['string', 'number', 'boolean'].includes(typeof value) ? String(value) : undefined
}

/** Names of an answer that are shown, and their length: a longer one could be a value. */
const MAX_NAMES = 8
const SHOWN_NAME = /^[A-Za-z_][\w-]{0,31}$/

/** Says that there is nothing at this path, and which names there are instead. */
export function missing(fields: Fields, path: readonly string[], secrets: Iterable<string>): string {
  const depth = path.findIndex((_, index) => !isRecord(valueAt(fields, path.slice(0, index + 1))))
  const within = path.slice(0, depth)
  const shown = shownNames(valueAt(fields, within) as Fields, secrets, within)
  return `the answer has no "${path.join('.')}"${shown === '' ? '' : `; it has ${shown}`}`
}

function shownNames(fields: Fields, secrets: Iterable<string>, within: readonly string[] = []): string {
  const names = Object.keys(fields)
    .filter((name) => SHOWN_NAME.test(name))
    .slice(0, MAX_NAMES)
    .map((name) => `"${[...within, name].join('.')}"`)
  return oneLine(names.join(', '), secrets)
}

/** Describes an answer with the names of its fields, and without their values. */
export function describeAnswer(answer: ServiceResponse, secrets: Iterable<string>): string {
  const { fields, inWords } = contentOf(answer)
  const names = fields === undefined ? '' : shownNames(fields, secrets)
  return `HTTP ${answer.status}, and its body is ${inWords}${names === '' ? '' : ` with ${names}`}`
}

/** The `Date` of an answer, in ms since the epoch; undefined if it has none. */
export function dateOf({ headers }: ServiceResponse): number | undefined {
  return httpDateMs(headers['date'])
}

/** How dates are sent (RFC 9110, section 5.6.7). `Date.parse` alone would take `-5` for a year. */
const HTTP_DATE = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/

export function httpDateMs(value: unknown): number | undefined {
  if (typeof value !== 'string' || !HTTP_DATE.test(value.trim())) return undefined
  const ms = Date.parse(value)
  return Number.isNaN(ms) ? undefined : ms
}
