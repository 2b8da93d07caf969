// The assertion that another program signs and renews (`service.assertion.file`): read whole, and judged.
import { dirname } from 'node:path'
import { fs } from '../files/fs.ts'
import { inDirectory } from '../files/in-directory.ts'
import { shellWord } from '../lib/display-text.ts'
import { DAY_MS, formatDuration } from '../lib/duration.ts'
import { errorCode, UserError } from '../lib/error.ts'
import { isRecord, parseJson } from '../lib/input.ts'
import { jwtEndMs } from '../token/token.ts'
import { permissionFaults, readFile } from './read-file.ts'
import { withoutNewline } from './secret-text.ts'

/** A JWT that may be sent, as far as it says itself. */
export interface ReadyAssertion {
  readonly text: string
  /** On the wall clock; null: it has no end. */
  readonly endsAtMs: number | null
  /** The owner of the file: the user of the program that writes it. */
  readonly uid: number
}

const MAX_BYTES = 16 * 1024

/**
 * The assertion in this file; else why none can be sent, as words after the name of the file, without any of
 * its text. `wallMs`: the time by which its end is judged. Never rejects.
 */
export async function readReadyAssertion(
  path: string,
  { wallMs }: { wallMs: number },
): Promise<ReadyAssertion | string> {
  try {
    const reading = await readFile(path)
    if (reading.kind === 'absent') return 'is not there'
    if (reading.kind === 'unreadable') return reading.sentence
    const { bytes, stats, isProjected } = reading
    const { uid } = stats
    // Any user may own it.
    const [fault] = permissionFaults(path, stats, { uid, holdsSecret: true, isProjected })
    if (fault !== undefined) return fault
    const ofDirectory = await directoryFault(path)
    if (ofDirectory !== undefined) return ofDirectory
    if (bytes.length > MAX_BYTES) return 'is larger than 16 KiB, and so no assertion'
    const text = withoutNewline(bytes.toString())
    const endsAtMs = text.trim() === '' ? 'is empty' : endOf(text)
    if (typeof endsAtMs === 'string') return endsAtMs
    if (endsAtMs !== null && endsAtMs <= wallMs)
      return `holds an assertion that ended ${formatDuration(wallMs - endsAtMs)} ago`
    return { text, endsAtMs, uid }
  } catch (error) {
    if (error instanceof UserError) return `cannot be read: ${error.message}`
    const code = errorCode(error)
    if (code === undefined) throw error
    // It was replaced between two steps.
    return `cannot be read (${code})`
  }
}

/** Why it is more than an identity that is renewed, as words after the name of its file. */
export function longLife({ endsAtMs }: ReadyAssertion, wallMs: number): string | undefined {
  const words = 'which makes it a key that anybody can use who reads it: have one made that lives for minutes'
  if (endsAtMs === null) return `holds an assertion without an end, ${words}`
  const leftMs = endsAtMs - wallMs
  return leftMs > DAY_MS
    ? `holds an assertion that lives for another ${formatDuration(leftMs)}, ${words}`
    : undefined
}

/** Whoever can write the directory, or that to which a link leads, could replace the file. */
async function directoryFault(path: string): Promise<string | undefined> {
  const directories = new Set([
    dirname(path),
    dirname(await inDirectory(dirname(path), () => fs.realpath(path))),
  ])
  for (const directory of directories) {
    const { mode } = await inDirectory(directory, () => fs.stat(directory))
    if ((mode & 0o022) === 0 || (mode & 0o1000) !== 0) continue
    const writers = (mode & 0o002) === 0 ? 'its group' : 'others'
    return `is in ${directory}, which can be written by ${writers}: \`sudo chmod go-w ${shellWord(directory)}\``
  }
  return undefined
}

/** Its end in ms since the epoch; null: it has none. Words: it is no whole JWT. */
function endOf(text: string): number | null | string {
  const endsAtMs = jwtEndMs(text)
  if (endsAtMs === undefined) return 'holds no JWT on one line'
  const [head = '', , signature = ''] = text.split('.')
  const header = parseJson(Buffer.from(head, 'base64url').toString())
  const bytes = Buffer.from(signature, 'base64url').length
  const isTorn = isRecord(header) && isPart(String(header['alg']), bytes)
  return isTorn ? 'holds a JWT that is not whole: its signature is too short' : endsAtMs
}

/** Reports whether a signature by this algorithm (RFC 7518, RFC 8037) has another length: it is being written. */
function isPart(algorithm: string, bytes: number): boolean {
  const fixed = { ES256: 64, ES384: 96, ES512: 132 } as const
  if (/^[RP]S(?:256|384|512)$/.test(algorithm)) return bytes < 256 || bytes % 64 !== 0
  if (algorithm === 'EdDSA') return bytes !== 64 && bytes !== 114
  return algorithm in fixed && bytes !== fixed[algorithm as keyof typeof fixed]
}
