// One record of the log as one line: for the journal, for people, for programs.
import { inspect, styleText } from 'node:util'
import { logLevels, type LogFields, type LogLevel } from '../lib/log.ts'
import { redact } from '../lib/secret.ts'

export interface LogRecord {
  readonly level: LogLevel
  readonly sentence: string
  readonly fields: LogFields
  /** When it was written, in ms since the epoch. */
  readonly wallMs: number
}
export interface Rendering {
  readonly format: 'journal' | 'text' | 'json'
  readonly isColoured: boolean
  /** What never appears in a line, in none of its usual shapes. */
  readonly secrets: Iterable<string>
}

/** journald cuts lines at 48 KiB (`LineMax=`), and what follows the cut has lost its level. */
const MAX_LINE_BYTES = 48 * 1024 - 1
/** A longer text is cut. */
const MAX_TEXT_LENGTH = 4096
const MAX_DEPTH = 5

const shapes = { journal: journalLine, text: textLine, json: jsonLine }

/**
 * The record without a line end: never more than one line, at most 48 KiB, without control characters and secrets.
 * Those are looked for in the values of fields: names, the event and the sentence are ours, and others rely on them.
 */
export function renderLine(record: LogRecord, rendering: Rendering): string {
  const line = lineOf(record, rendering)
  const bytes = Buffer.byteLength(line)
  if (bytes <= MAX_LINE_BYTES) return line
  return lineOf({ ...record, fields: { event: record.fields.event, omittedBytes: bytes } }, rendering)
}

function lineOf(record: LogRecord, rendering: Rendering): string {
  const { event, ...others } = record.fields
  const fields = plain(others, { secrets: rendering.secrets, depth: 0 }) as Omit<LogFields, 'event'>
  return shapes[rendering.format]({ ...record, fields: { event, ...fields } }, rendering)
}

function journalLine({ level, sentence, fields }: LogRecord): string {
  return escapeOdd(`<${logLevels.indexOf(level)}>${sentence} ${wordsOf(fields)}`)
}

const recordNames = new Set(['time', 'level', 'message'])

/** The names that every record has stay what they are; a field of such a name comes with a low line after it. */
function jsonLine({ level, sentence, fields, wallMs }: LogRecord): string {
  const { event, ...others } = fields
  const named = Object.entries(others).map(([name, value]) => [
    recordNames.has(name) ? `${name}_` : name,
    value,
  ])
  const time = new Date(wallMs).toISOString()
  return escapeOdd(JSON.stringify({ time, level, message: sentence, event, ...Object.fromEntries(named) }))
}

const colours = {
  emerg: 'red',
  alert: 'red',
  crit: 'red',
  error: 'red',
  warning: 'yellow',
  notice: 'green',
  info: 'blue',
  debug: 'gray',
} as const

function textLine({ level, sentence, fields, wallMs }: LogRecord, { isColoured }: Rendering): string {
  const { event: _event, ...others } = fields
  const paint = (colour: Parameters<typeof styleText>[0], text: string): string =>
    isColoured && text !== '' ? styleText(colour, text, { validateStream: false }) : text
  const parts = [
    paint('gray', localTime(wallMs)),
    paint(colours[level], level.padEnd(7)),
    paint('bold', escapeOdd(sentence)),
    paint('gray', escapeOdd(wordsOf(others))),
  ]
  return parts.join(' ').trimEnd()
}

function localTime(wallMs: number): string {
  const at = new Date(wallMs)
  const two = (count: number): string => String(count).padStart(2, '0')
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`
  return `${date} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`
}

/** `name=value`, with quotation marks where a value has others than plain characters. */
function wordsOf(fields: Readonly<Record<string, unknown>>): string {
  return Object.entries(fields)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => `${name}=${wordOf(value)}`)
    .join(' ')
}

function wordOf(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  return /^[\w.:/@+,~*[\]-]+$/.test(text) ? text : JSON.stringify(text)
}

/** The value as JSON can show it: errors as their message, secrets as [secret], nothing endless. */
function plain(value: unknown, { secrets, depth }: { secrets: Iterable<string>; depth: number }): unknown {
  if (typeof value === 'string') return clean(value, secrets)
  if (value === null || value === undefined || typeof value === 'boolean' || typeof value === 'number')
    return value
  if (value instanceof Error) return clean(value.message, secrets)
  if (typeof value !== 'object') return clean(inspect(value), secrets)
  if (depth >= MAX_DEPTH) return '…'
  const deeper = { secrets, depth: depth + 1 }
  const toJSON: unknown = Reflect.get(value, 'toJSON')
  if (typeof toJSON === 'function') return plain(toJSON.call(value), deeper)
  if (Array.isArray(value)) return value.map((item) => plain(item, deeper))
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, plain(item, deeper)]))
}

/** Secrets go first: escaped or cut, what is left of one might not be recognised. */
function clean(text: string, secrets: Iterable<string>): string {
  const shown = redact(text, secrets)
  return shown.length <= MAX_TEXT_LENGTH ? shown : `${shown.slice(0, MAX_TEXT_LENGTH)}…`
}

/** Line ends of any kind, escape sequences for terminals, and marks that turn the writing direction. */
const ODD = /[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

function escapeOdd(text: string): string {
  return text.replaceAll(ODD, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
