// The seal: texts in the store can be read and written only with the account's secret. A text is `FENCE ID
// BOX`; the box is encrypted, and bound to account, key, fence and id.
import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from 'node:crypto'
import * as v from 'valibot'
import { sharedTexts, type Credentials } from '../config/credentials.ts'
import type { Secret } from '../lib/secret.ts'
import { expirySources, permanentReasons, transientReasons } from '../protocol.ts'
import { MAX_TOKEN_LENGTH, TOKEN } from '../token/token.ts'
import type { Pair } from './store.ts'

const ms = v.pipe(v.number(), v.finite())
const common = {
  /** The name of the host that asked. */
  by: v.string(),
  /** When the request was sent, in ms on the store's clock. */
  at: ms,
  /** When the text is of no use any more, in ms on that clock. */
  end: ms,
}
const token = v.object({
  kind: v.literal('ok'),
  ...common,
  accessToken: v.pipe(v.string(), v.maxLength(MAX_TOKEN_LENGTH), v.regex(TOKEN)),
  expirySource: v.picklist(expirySources),
})
const refusal = v.object({
  kind: v.literal('permanent'),
  ...common,
  reason: v.picklist(permanentReasons),
  detail: v.string(),
  status: v.number(),
  says: v.optional(v.string()),
})
/** An answer that may concern one host alone, until a second host has got it, too. */
const unconfirmed = v.object({
  reason: v.picklist([...permanentReasons, 'rejected']),
  status: v.nullable(v.number()),
  /** The random id of the host, which its name need not be. */
  hostId: v.string(),
  by: v.string(),
})
/** Why no host is to ask until `end`. */
const wait = v.object({
  kind: v.literal('postponed'),
  ...common,
  /** For `unconfirmed` it is `rejected`: 2.0.0 knows no refusal here. */
  reason: v.picklist(transientReasons),
  detail: v.string(),
  unconfirmed: v.optional(v.nullable(unconfirmed), null),
})
/** What each key holds. The shape is checked, because another host may run another version. */
const shapes = { record: v.variant('kind', [token, refusal]), lease: wait }

export type Key = keyof typeof shapes
export type Sealed<K extends Key> = Readonly<v.InferOutput<(typeof shapes)[K]>>
export type Opened<K extends Key> = Sealed<K> & Pair

export type Unconfirmed = Readonly<v.InferOutput<typeof unconfirmed>>

export type Seal = ReturnType<typeof createSeal>

export interface SealOptions {
  readonly baseUrl: string
  /** The service as data (canonical JSON); null: the one of the interface description. */
  readonly description: string | null
  readonly credentials: Credentials
  /** `share.key`. */
  readonly key: Secret | null
}

const VERSION = 2
const NONCE_BYTES = 12
const TAG_BYTES = 16
const TEXT = /^(\d{1,16}) ([\da-f]{16}) ([A-Za-z\d+/]+=*)$/

export function createSeal({ baseUrl, description, credentials, key: shareKey }: SealOptions) {
  const { apiKey } = credentials
  const material = JSON.stringify(sharedTexts(credentials, shareKey))
  const names = JSON.stringify([VERSION, baseUrl, apiKey?.reveal() ?? null, description])
  const account = createHash('sha256').update(names).digest()
  const derive = (purpose: string, bytes: number): Buffer => {
    const info = Buffer.concat([Buffer.from(purpose), account])
    return Buffer.from(hkdfSync('sha256', material, `kyc-tokend share v${VERSION}`, info, bytes))
  }
  const accountKey = derive('subject', 16).toString('hex')
  const sealKey = derive('seal', 32)
  const boundTo = (key: Key, { fence, id }: Pair): Buffer =>
    Buffer.from(`kyc-tokend share ${VERSION} ${accountKey} ${key} ${fence} ${id}`)

  return {
    /** Names the account in keys and channel without naming it to others: 32 hex digits. */
    accountKey,
    seal<K extends Key>(key: K, pair: Pair, content: Sealed<K>): string {
      const nonce = randomBytes(NONCE_BYTES)
      const cipher = createCipheriv('aes-256-gcm', sealKey, nonce).setAAD(boundTo(key, pair))
      const sealed = Buffer.concat([cipher.update(JSON.stringify(content)), cipher.final()])
      const box = Buffer.concat([nonce, cipher.getAuthTag(), sealed]).toString('base64')
      return `${pair.fence} ${pair.id} ${box}`
    },
    /** Null if the text was not sealed with this secret for exactly this key and pair. */
    open<K extends Key>(key: K, text: string): Opened<K> | null {
      const [, digits, id = '', box = ''] = TEXT.exec(text) ?? []
      const pair = { fence: Number(digits), id }
      const bytes = Buffer.from(box, 'base64')
      try {
        const nonce = bytes.subarray(0, NONCE_BYTES)
        const decipher = createDecipheriv('aes-256-gcm', sealKey, nonce, { authTagLength: TAG_BYTES })
          .setAAD(boundTo(key, pair))
          .setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES))
        const sealed = bytes.subarray(NONCE_BYTES + TAG_BYTES)
        const opened = Buffer.concat([decipher.update(sealed), decipher.final()])
        const { success, output } = v.safeParse(shapes[key], JSON.parse(opened.toString()))
        return success ? { ...(output as Sealed<K>), ...pair } : null
      } catch {
        // Another secret, key or pair, or a text that was changed or cut; the caller reports it.
        return null
      }
    },
  }
}
