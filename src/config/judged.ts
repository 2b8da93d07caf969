// Remembers which configuration this version has judged good, so that a restart need not load what judges it.
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { FileError, replaceFile } from '../lib/atomic-file.ts'
import { errorCode } from '../lib/error.ts'
import { performNow, readSmallFile } from '../lib/file-calls.ts'
import { version } from '../lib/version.ts'
import type { Judged } from './load.ts'

export interface JudgedFile extends Judged {
  /** Writes down what was judged good. Only for a daemon that runs: another one's file is not to be touched. */
  keep(): Promise<void>
}

const SALT_BYTES = 16
/** More than a salt and a fingerprint in hex digits take. */
const MAX_FILE_BYTES = 256

/**
 * Holds a salted fingerprint of the file's bytes, never the bytes: they may hold a secret. A file that cannot be read
 * or is not ours remembers nothing, and the configuration is judged anew.
 */
export function createJudgedFile(path: string): JudgedFile {
  const known = readKnown(path)
  let fresh: string | null = null
  return {
    isKnownGood(bytes) {
      if (known === undefined) return false
      const [salt = '', fingerprint = ''] = known.split(' ')
      return isSame(fingerprint, fingerprintOf(bytes, salt))
    },
    remember(bytes) {
      const salt = randomBytes(SALT_BYTES).toString('hex')
      fresh = `${salt} ${fingerprintOf(bytes, salt)}`
    },
    async keep() {
      if (fresh === null) return
      try {
        await replaceFile(path, fresh, { mode: 0o600 })
        fresh = null
      } catch (error) {
        // A full disk, say: the next start takes a few milliseconds longer.
        if (!(error instanceof FileError)) throw error
      }
    },
  }
}

/** Read before it is certain whose directory this is: a FIFO there must not keep us waiting. */
function readKnown(path: string): string | undefined {
  try {
    const { content, stats } = performNow(readSmallFile(path, MAX_FILE_BYTES))
    return stats.uid === process.geteuid?.() ? content?.toString('utf8') : undefined
  } catch (error) {
    if (errorCode(error) === undefined) throw error
    // Not there, or not for us to read: nothing is known, and nothing is lost but a few milliseconds.
    return undefined
  }
}

function fingerprintOf(bytes: Buffer, salt: string): string {
  return createHmac('sha256', salt).update(version).update(bytes).digest('hex')
}

function isSame(one: string, other: string): boolean {
  return one.length === other.length && timingSafeEqual(Buffer.from(one), Buffer.from(other))
}
