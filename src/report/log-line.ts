// The line of a log record, for a person or a program, without secrets in its fields.
import { styleText } from 'node:util'
import { escapeUnsafe } from '../lib/display-text.ts'
import { logLevels, type LogFields, type LogLevel } from '../lib/log.ts'
import { createRedaction } from '../lib/redaction.ts'

export interface LogRecord {
  readonly level: LogLevel
  /** The constant sentence. */
  readonly message: string
  readonly fields: LogFields
  /** Since the Unix epoch, in ms. */
  readonly wallMs: number
}
export interface LineOptions {
  readonly format: 'text' | 'json'
  readonly isColoured: boolean
  /** The line goes to the journal, which takes the priority from its beginning. */
  readonly isJournal: boolean
  /** No field contains one of these, as it is or in a usual encoding. */
  readonly secrets: Iterable<string>
}

/** journald cuts lines at 48 KiB (`LineMax=`), and the rest of such a line would have no level. */
const MAX_LINE_BYTES = 48 * 1024 - 1
/** A longer text is cut. */
const MAX_TEXT_LENGTH = 4096

/** One line of at most 48 KiB without control characters; a longer one has no fields but its length. */
export function formatLine(record: LogRecord, options: LineOptions): string {
  const write = { text: textLine, json: jsonLine }[options.format]
  const shown = redacted(record, options.secrets)
  const line = write(shown, options)
  const bytes = Buffer.byteLength(line)
  if (bytes <= MAX_LINE_BYTES) return line
  return write({ ...shown, fields: { event: record.fields.event, omittedBytes: bytes } }, options)
}

/**
 * The same record with fields as JSON has them, without secrets. Others rely on event and sentence, constants
 * of this program: only values of fields are redacted.
 */
function redacted(record: LogRecord, secrets: Iterable<string>): LogRecord {
  const { event, ...others } = record.fields
  const redact = createRedaction(secrets)
  const values = JSON.parse(
    JSON.stringify(others, (_, value: unknown) => {
      const text = value instanceof Error ? value.message : value
      return typeof text === 'string' ? cut(redact(text)) : text
    }),
  ) as object
  return { ...record, fields: { event, ...values } }
}

/** Of a redacted text: half of a secret would not be recognized. */
function cut(text: string): string {
  return text.length <= MAX_TEXT_LENGTH ? text : `${text.slice(0, MAX_TEXT_LENGTH)}…`
}

/** The priority before a line, as sd-daemon(3) has it. */
function prefix(level: LogLevel): string {
  return `<${logLevels.indexOf(level)}>`
}

function jsonLine({ level, message, fields, wallMs }: LogRecord, { isJournal }: LineOptions): string {
  const json = JSON.stringify({ time: new Date(wallMs).toISOString(), level, message, ...fields })
  return escapeUnsafe(isJournal ? `${prefix(level)}${json}` : json)
}

/** More urgent levels are red. */
const colours: Partial<Record<LogLevel, 'yellow' | 'green' | 'blue' | 'gray'>> = {
  warning: 'yellow',
  notice: 'green',
  info: 'blue',
  debug: 'gray',
}

/** The journal has the time and the level itself. */
function textLine(
  { level, message, fields, wallMs }: LogRecord,
  { isColoured, isJournal }: LineOptions,
): string {
  const text = escapeUnsafe(`${message} ${toLogfmt(fields)}`)
  if (isJournal) return `${prefix(level)}${text}`
  const padded = level.padEnd(7)
  const shown = isColoured ? styleText(colours[level] ?? 'red', padded, { validateStream: false }) : padded
  return `${localTime(wallMs)} ${shown} ${text}`
}

function localTime(wallMs: number): string {
  const aheadMs = -60_000 * new Date(wallMs).getTimezoneOffset()
  return new Date(wallMs + aheadMs).toISOString().slice(0, 19).replace('T', ' ')
}

/** `name=value` for fields that have a value, quoted if it has other than plain characters. */
function toLogfmt(fields: Readonly<Record<string, unknown>>): string {
  return Object.entries(fields)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => {
      const text = typeof value === 'string' ? value : JSON.stringify(value)
      return `${name}=${/^[\w.:/@+,~*[\]-]+$/.test(text) ? text : JSON.stringify(text)}`
    })
    .join(' ')
}
