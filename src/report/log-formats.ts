// The log's formats, as winston formats: clean the fields, then write the record as one line.
import { inspect, styleText } from 'node:util'
import { format, type Format, type TransformableInfo } from 'logform'
import { escapeUnsafe } from '../lib/display-text.ts'
import { logLevels, type LogFields, type LogLevel } from '../lib/log.ts'
import { redact } from '../lib/secret.ts'

export interface LogRecord {
  readonly level: LogLevel
  /** The constant sentence. */
  readonly message: string
  readonly fields: LogFields
  /** Since the Unix epoch, in ms. */
  readonly wallMs: number
}
export interface LineOptions {
  readonly format: 'journal' | 'text' | 'json'
  readonly isColoured: boolean
  /** The stream leads to the journal, which takes the priority from the beginning of each line. */
  readonly isJournal: boolean
  /** Read with each record. No line contains one of them, in none of its usual encodings. */
  readonly secrets: () => Iterable<string>
}

/** journald cuts lines at 48 KiB (`LineMax=`), and what follows the cut has lost its level. */
const MAX_LINE_BYTES = 48 * 1024 - 1
/** A longer text is cut. */
const MAX_TEXT_LENGTH = 4096
const MAX_DEPTH = 5

/** Each record becomes one line of at most 48 KiB without control characters, and without secrets in its fields. */
export function lineFormat(options: LineOptions): Format {
  const write = { journal: journalLine, text: textLine, json: jsonLine }[options.format]
  const toLine = (record: LogRecord): string => {
    const line = write(record, options)
    const bytes = Buffer.byteLength(line)
    if (bytes <= MAX_LINE_BYTES) return line
    return write({ ...record, fields: { event: record.fields.event, omittedBytes: bytes } }, options)
  }
  return format.combine(
    cleanFields({ secrets: options.secrets }),
    format.printf((info) => toLine(info as unknown as LogRecord)),
  )
}

/** Names, event and sentence are constants of this program that others rely on, so only values are redacted. */
const cleanFields = format((info: TransformableInfo, options) => {
  const { secrets } = options as Pick<LineOptions, 'secrets'>
  const { event, ...others } = info['fields'] as LogFields
  info['fields'] = { event, ...(toLoggable(others, { secrets: secrets(), depth: 0 }) as object) }
  return info
})

function journalLine({ level, message, fields }: LogRecord): string {
  return escapeUnsafe(`${priority(level)}${message} ${toLogfmt(fields)}`)
}

/** As sd-daemon(3) has it. */
function priority(level: LogLevel): string {
  return `<${logLevels.indexOf(level)}>`
}

const recordNames = new Set(['time', 'level', 'message'])

/** A field with a name that every record has gets a low line after it. */
function jsonLine({ level, message, fields, wallMs }: LogRecord, { isJournal }: LineOptions): string {
  const { event, ...others } = fields
  const named = Object.entries(others).map(([name, value]) => [
    recordNames.has(name) ? `${name}_` : name,
    value,
  ])
  const time = new Date(wallMs).toISOString()
  const json = JSON.stringify({ time, level, message, event, ...Object.fromEntries(named) })
  return escapeUnsafe(isJournal ? `${priority(level)}${json}` : json)
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

function textLine({ level, message, fields, wallMs }: LogRecord, { isColoured }: LineOptions): string {
  const { event: _event, ...others } = fields
  const paint = (colour: Parameters<typeof styleText>[0], text: string): string =>
    isColoured && text !== '' ? styleText(colour, text, { validateStream: false }) : text
  const parts = [
    paint('gray', localTime(wallMs)),
    paint(colours[level], level.padEnd(7)),
    paint('bold', escapeUnsafe(message)),
    paint('gray', escapeUnsafe(toLogfmt(others))),
  ]
  return parts.join(' ').trimEnd()
}

function localTime(wallMs: number): string {
  const at = new Date(wallMs)
  const two = (count: number): string => String(count).padStart(2, '0')
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`
  return `${date} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`
}

/** `name=value`, quoted where a value has other than plain characters. */
function toLogfmt(fields: Readonly<Record<string, unknown>>): string {
  return Object.entries(fields)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => `${name}=${toLogfmtValue(value)}`)
    .join(' ')
}

function toLogfmtValue(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  return /^[\w.:/@+,~*[\]-]+$/.test(text) ? text : JSON.stringify(text)
}

/** The value as JSON can show it: errors as their message, secrets as [secret], nothing endless. */
function toLoggable(
  value: unknown,
  { secrets, depth }: { secrets: Iterable<string>; depth: number },
): unknown {
  if (typeof value === 'string') return clean(value, secrets)
  if (value === null || value === undefined || typeof value === 'boolean' || typeof value === 'number')
    return value
  if (value instanceof Error) return clean(value.message, secrets)
  if (typeof value !== 'object') return clean(inspect(value), secrets)
  if (depth >= MAX_DEPTH) return '…'
  const deeper = { secrets, depth: depth + 1 }
  const toJSON: unknown = Reflect.get(value, 'toJSON')
  if (typeof toJSON === 'function') return toLoggable(toJSON.call(value), deeper)
  if (Array.isArray(value)) return value.map((item) => toLoggable(item, deeper))
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, toLoggable(item, deeper)]))
}

/** Redacts before it cuts: half of a secret would not be recognized. */
function clean(text: string, secrets: Iterable<string>): string {
  const shown = redact(text, secrets)
  return shown.length <= MAX_TEXT_LENGTH ? shown : `${shown.slice(0, MAX_TEXT_LENGTH)}…`
}
