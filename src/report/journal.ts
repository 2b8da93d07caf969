// Log records as entries of systemd's journal, each with its fields, by the journal's native protocol
// (systemd.io/JOURNAL_NATIVE_PROTOCOL).
import { existsSync } from 'node:fs'
import { StringDecoder } from 'node:string_decoder'
import type { Clock } from '../lib/clock.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorCode, fallbackOnSystemError } from '../lib/error.ts'
import { messageOf, priorityOf, redacted, type LogRecord } from './log-line.ts'

/** Sends a datagram to this Unix socket. Throws if that fails, EAGAIN included. */
export type SendEntry = (path: string, entry: Uint8Array) => void

const JOURNAL_SOCKET = '/run/systemd/journal/socket'
/**
 * The journal itself cuts at 768 KiB, and a datagram must fit into the sender's buffer (208 KiB by default).
 */
const MAX_VALUE_BYTES = 64 * 1024
const MAX_ENTRY_BYTES = 128 * 1024
/** The longest name of a field that the journal accepts. */
const MAX_NAME_LENGTH = 64
const RETRY_MS = 100
/**
 * The journal asks the kernel for the unit of a sender that it does not know: the sender must still be there.
 */
const RECOGNIZED_MS = 100

/** The entry of a record, of which no field contains one of the secrets. */
export function journalEntry(
  record: LogRecord,
  { identifier, secrets }: { identifier: string; secrets: Iterable<string> },
): Buffer {
  const shown = redacted(record, secrets)
  const fields = Object.entries(shown.fields).flatMap(([name, value]) =>
    textsOf(value).map((text): [string, string] => [fieldName(name), text]),
  )
  const parts = [
    serialized('MESSAGE', messageOf(shown)),
    serialized('PRIORITY', String(priorityOf(record.level))),
    serialized('SYSLOG_IDENTIFIER', identifier),
  ]
  let bytes = 0
  for (const [name, text] of fields) {
    const part = serialized(name, text)
    if (bytes + part.length > MAX_ENTRY_BYTES) continue
    parts.push(part)
    bytes += part.length
  }
  return Buffer.concat(parts)
}

/**
 * Sends entries one after the other. What the journal does not accept is tried again each 100 ms, before
 * all later ones: a socket of datagrams has no event for that.
 */
export function createJournal({
  socket = JOURNAL_SOCKET,
  sendEntry,
  clock,
}: {
  socket?: string | undefined
  sendEntry: SendEntry
  clock: Clock
}) {
  const waiting: { readonly entry: Buffer; readonly settle: (isSent: boolean) => void }[] = []
  const isThere = existsSync(socket)
  let lastSentMs = -Infinity

  /** Reports whether the entry was sent, or null: not yet. */
  function tryNow(entry: Buffer): boolean | null {
    try {
      sendEntry(socket, entry)
      lastSentMs = clock.now().bootMs
      return true
    } catch (error) {
      // It is too long for this host's buffers, now and later.
      if (errorCode(error) === 'EMSGSIZE') return false
      return fallbackOnSystemError(null)(error)
    }
  }

  function retry(): void {
    for (let next = waiting[0]; next !== undefined; next = waiting[0]) {
      const isSent = tryNow(next.entry)
      if (isSent === null) return void clock.schedule(RETRY_MS, retry)
      waiting.shift()
      next.settle(isSent)
    }
  }

  return {
    /** Its socket was there at the start. One that is gone later is waited for. */
    isThere,
    /** Sends it, after those before it; reports whether it did. */
    async send(entry: Buffer): Promise<boolean> {
      const isSent = waiting.length > 0 ? null : tryNow(entry)
      if (isSent !== null) return isSent
      if (waiting.length === 0) clock.schedule(RETRY_MS, retry)
      return new Promise((settle) => waiting.push({ entry, settle }))
    },
    /** Resolves once the journal had the time to see which unit sent the last entry. */
    async recognized(): Promise<void> {
      const leftMs = lastSentMs + RECOGNIZED_MS - clock.now().bootMs
      if (leftMs > 0) await clock.sleep(leftMs, new AbortController().signal)
    },
  }
}

/** The texts of a field: of a list one for each value, of null none. */
function textsOf(value: unknown): string[] {
  if (Array.isArray(value)) return value.filter((item) => item !== null).map(textOf)
  return value === null || value === undefined ? [] : [textOf(value)]
}

function textOf(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  return text.split('\n').map(escapeUnsafe).join('\n')
}

/** `retryAt`: `KYC_RETRY_AT`. */
function fieldName(name: string): string {
  const words = name.replaceAll(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()
  return `KYC_${words.replaceAll(/[^A-Z\d_]/g, '_')}`.slice(0, MAX_NAME_LENGTH)
}

/** A value of several lines has its length before it. */
function serialized(name: string, text: string): Buffer {
  const value = cut(Buffer.from(text))
  if (!value.includes('\n')) return Buffer.concat([Buffer.from(`${name}=`), value, Buffer.from('\n')])
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(value.length))
  return Buffer.concat([Buffer.from(`${name}\n`), length, value, Buffer.from('\n')])
}

/** Ends with a whole character. */
function cut(value: Buffer): Buffer {
  if (value.length <= MAX_VALUE_BYTES) return value
  return Buffer.from(new StringDecoder('utf8').write(value.subarray(0, MAX_VALUE_BYTES)))
}
