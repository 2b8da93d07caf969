// The seal: records in the store can be read and written only with the account's secret.
import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from 'node:crypto'
import * as v from 'valibot'
import { sharedTexts, type Credentials, type Secret } from '../lib/secret.ts'
import { expirySources, type TransientReason } from '../token/outcome.ts'
import type { RecordHead } from './store.ts'

const number = v.pipe(v.number(), v.finite())
/** A token with its life. `ageMs` is its age at the moment `at` of the record. */
const sharedToken = v.object({
  accessToken: v.string(),
  lifeMs: number,
  expirySource: v.picklist(expirySources),
  ageMs: number,
})
const common = {
  /** The name of the host that asked. */
  by: v.string(),
  /** That host asked by itself, while it could not use the store. */
  isAlone: v.exactOptional(v.literal(true)),
}
/** A failure carries the token that is still good: a host that starts then has one. */
const failed = { ...common, detail: v.string(), token: v.nullable(sharedToken) }
/** A message of one host to the others, without credentials. Its shape is checked, because another host may run another version. */
const sharedRecord = v.variant('kind', [
  v.object({ kind: v.literal('ok'), ...common, ...sharedToken.entries }),
  v.object({
    kind: v.literal('permanent'),
    ...failed,
    reason: v.picklist(['account-inactive', 'account-not-found']),
    status: number,
  }),
  v.object({
    kind: v.literal('transient'),
    ...failed,
    reason: v.custom<TransientReason>((reason) => typeof reason === 'string'),
    status: v.nullable(number),
    /** Attempts of the fleet in a row. */
    attempts: number,
  }),
])
export type SharedToken = Readonly<v.InferOutput<typeof sharedToken>>
export type SharedRecord = Readonly<v.InferOutput<typeof sharedRecord>>

export type Seal = ReturnType<typeof createSeal>

export interface SealOptions {
  readonly baseUrl: string
  /** The service as data (canonical JSON); null: the one of the interface description. */
  readonly description: string | null
  readonly credentials: Credentials
  /** `share.key`. */
  readonly key: Secret | null
}

const MAX_RECORD_BYTES = 32 * 1024
const VERSION = 1
const NONCE_BYTES = 12
const TAG_BYTES = 16
const HEAD_BYTES = 1 + NONCE_BYTES + TAG_BYTES

export function createSeal({ baseUrl, description, credentials, key }: SealOptions) {
  const { apiKey } = credentials
  const material = JSON.stringify([...sharedTexts(credentials, key)])
  // Without a description the key is that of version 1.1.0, with which these hosts may share.
  const names = [VERSION, baseUrl, apiKey.reveal(), ...(description === null ? [] : [description])]
  const account = createHash('sha256').update(JSON.stringify(names)).digest()
  const derive = (purpose: string, bytes: number): Buffer => {
    const info = Buffer.concat([Buffer.from(purpose), account])
    return Buffer.from(hkdfSync('sha256', material, 'kyc-tokend share v1', info, bytes))
  }
  const accountKey = derive('subject', 16).toString('hex')
  const sealKey = derive('seal', 32)
  const boundTo = ({ fence, atMs, notBeforeMs }: RecordHead): Buffer =>
    Buffer.from(`kyc-tokend share ${VERSION} ${accountKey} ${fence} ${atMs} ${notBeforeMs}`)

  return {
    /** Names the account in keys and channel without naming it to others: 32 hex digits. */
    accountKey,
    /** Throws a RangeError if the record is longer than MAX_RECORD_BYTES. */
    encrypt(record: SharedRecord, head: RecordHead): string {
      const text = Buffer.from(JSON.stringify(record))
      if (text.length > MAX_RECORD_BYTES) {
        throw new RangeError(`A shared record of ${text.length} bytes is longer than ${MAX_RECORD_BYTES}`)
      }
      const nonce = randomBytes(NONCE_BYTES)
      const cipher = createCipheriv('aes-256-gcm', sealKey, nonce).setAAD(boundTo(head))
      const sealed = Buffer.concat([cipher.update(text), cipher.final()])
      return Buffer.concat([Buffer.from([VERSION]), nonce, cipher.getAuthTag(), sealed]).toString('base64')
    },
    /** Null if the text was not encrypted with this secret under exactly this head. */
    decrypt(text: string, head: RecordHead): SharedRecord | null {
      if (text.length > 2 * MAX_RECORD_BYTES) return null
      const bytes = Buffer.from(text, 'base64')
      // base64 ignores what does not belong to it; a sealed record has one spelling only.
      if (bytes[0] !== VERSION || bytes.toString('base64') !== text) return null
      try {
        const nonce = bytes.subarray(1, 1 + NONCE_BYTES)
        const decipher = createDecipheriv('aes-256-gcm', sealKey, nonce, { authTagLength: TAG_BYTES })
          .setAAD(boundTo(head))
          .setAuthTag(bytes.subarray(1 + NONCE_BYTES, HEAD_BYTES))
        const opened = Buffer.concat([decipher.update(bytes.subarray(HEAD_BYTES)), decipher.final()])
        const { success, output } = v.safeParse(sharedRecord, JSON.parse(opened.toString()))
        return success ? output : null
      } catch {
        // Another secret, another head, or a text that was changed or cut; the caller logs it.
        return null
      }
    },
  }
}
