// The seal: texts in the store can be written and read only by hosts that know the account's secrets.
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto'
import type { TransientReason } from '../protocol.ts'
import type { Grant, PermanentFailure } from '../token/outcome.ts'

/** The service gave this answer, which holds for all hosts of the account. */
type Answer =
  | Pick<Grant, 'kind' | 'accessToken' | 'expirySource'>
  | Pick<PermanentFailure, 'kind' | 'reason' | 'detail' | 'status'>
/** `by` is the host that wrote; `at` and `until` are of the store's clock, in ms. */
interface Stamp {
  readonly id: string
  readonly by: string
  readonly at: number
  readonly until: number
}

/** The two keys have these contents. */
export interface Contents {
  /** `at` says when the request was written; its id is that of the answer. */
  readonly record: Answer & Stamp
  /** With a reason it is a wait for all hosts, else the right of one host to ask; its id is that of the host. */
  readonly lease: Stamp & { readonly reason?: TransientReason; readonly detail?: string }
}
export type Name = keyof Contents
export type Seal = ReturnType<typeof createSeal>

const VERSION = 3
const NONCE_BYTES = 12
const SEALED_AT = 28

/** `material` is all that identifies the account, with its secrets. Another one is another account. */
export function createSeal(material: string, prefix: string) {
  const derive = (purpose: string, bytes: number): Buffer =>
    Buffer.from(hkdfSync('sha256', material, `kyc-tokend share ${VERSION}`, purpose, bytes))
  const account = derive('account', 16).toString('hex')
  const sealKey = derive('seal', 32)
  const keyOf = (name: Name): string => `${prefix}:${VERSION}:{${account}}:${name}`
  const boundTo = (name: Name): Buffer => Buffer.from(`${VERSION} ${account} ${name}`)

  return {
    /** Redis has these keys. A cluster has all keys with the same text in braces in one slot. */
    keys: { record: keyOf('record'), lease: keyOf('lease') },
    seal<N extends Name>(name: N, content: Contents[N]): string {
      const nonce = randomBytes(NONCE_BYTES)
      const cipher = createCipheriv('aes-256-gcm', sealKey, nonce).setAAD(boundTo(name))
      const sealed = Buffer.concat([cipher.update(JSON.stringify(content)), cipher.final()])
      return Buffer.concat([nonce, cipher.getAuthTag(), sealed]).toString('base64')
    },
    /** Null: no host of this account wrote the text for this key. */
    open<N extends Name>(name: N, text: string): Contents[N] | null {
      const bytes = Buffer.from(text, 'base64')
      try {
        const nonce = bytes.subarray(0, NONCE_BYTES)
        const decipher = createDecipheriv('aes-256-gcm', sealKey, nonce, { authTagLength: 16 })
        decipher.setAAD(boundTo(name)).setAuthTag(bytes.subarray(NONCE_BYTES, SEALED_AT))
        const opened = Buffer.concat([decipher.update(bytes.subarray(SEALED_AT)), decipher.final()])
        return JSON.parse(opened.toString()) as Contents[N]
      } catch {
        // Another secret or key, or a text that was changed or cut: all are one case, of no use.
        return null
      }
    },
  }
}
