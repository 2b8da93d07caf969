// A secret value, which only reveal() reads and which prints as [secret]. The search for secrets in texts.
import { inspect } from 'node:util'

const REDACTED = '[secret]'
/** Names under which people send secrets. */
export const NAME_OF_SECRET = /key|secret|token|password/i

export class Secret {
  readonly #value: string
  constructor(value: string) {
    this.#value = value
  }
  /** The value itself. Every call could leak it. */
  reveal(): string {
    return this.#value
  }
  toString(): string {
    return REDACTED
  }
  toJSON(): string {
    return REDACTED
  }
  [inspect.custom](): string {
    return REDACTED
  }
}

/** Everything by which the service knows the account. */
export interface Credentials {
  readonly apiKey: Secret
  /** Null: the service takes none. */
  readonly apiSecret: Secret | null
  /** Further ones, by their settings' key paths: those of `service`, the client certificate and its key. */
  readonly further?: Readonly<Record<string, Secret>>
}

/** All of them as one value that can be compared and hashed; of key and secret alone, these two. */
export function credentialTexts({ apiKey, apiSecret, further = {} }: Credentials): readonly unknown[] {
  const more = Object.entries(further).map(([at, secret]) => [at, secret.reveal()] as const)
  const sorted = more.toSorted(([one], [other]) => (one < other ? -1 : 1))
  return [apiKey.reveal(), apiSecret?.reveal() ?? null, ...sorted]
}

/**
 * The secrets from which the key of a fleet is made: the account's and `share.key`. Not the client
 * certificate, which each host may have of its own.
 */
export function sharedTexts(credentials: Credentials, key: Secret | null): readonly unknown[] {
  const further = Object.entries(credentials.further ?? {}).filter(([at]) => !at.startsWith('request.'))
  const [, secret, ...more] = credentialTexts({ ...credentials, further: Object.fromEntries(further) })
  return [secret, key?.reveal() ?? null, ...more]
}

/** Key and secret as HTTP Basic has them; `isEncoded`: each form-encoded first (RFC 6749, section 2.3.1). */
export function basicOf({ apiKey, apiSecret }: Credentials, { isEncoded = true } = {}): string {
  const pair = [apiKey.reveal(), apiSecret?.reveal() ?? '']
  return Buffer.from(pair.map((text) => (isEncoded ? formEncoded(text) : text)).join(':')).toString('base64')
}

/**
 * All of them in the forms in which they may be sent. A certificate and its key, which have several lines,
 * never are.
 */
export function sentTexts(credentials: Credentials): string[] {
  const { apiKey, apiSecret, further = {} } = credentials
  const texts = [apiKey, apiSecret, ...Object.values(further)].flatMap((secret) => secret?.reveal() ?? [])
  const basic = [true, false].map((isEncoded) => basicOf(credentials, { isEncoded }))
  return [...texts.filter((text) => !text.includes('\n')), ...basic]
}

function formEncoded(text: string): string {
  return new URLSearchParams({ '': text }).toString().slice(1)
}

/** A shorter text is found in others by chance. */
const MIN_SECRET_LENGTH = 8

/**
 * Reports whether the text is or contains the secret, as it is or encoded. With `isEncoded` false, only the
 * secret as it is counts as contained. A short secret is never counted as contained.
 */
export function holdsSecret(text: string, secret: string, { isEncoded = true } = {}): boolean {
  const shapes = shapesOf(secret)
  if (shapes.includes(text)) return true
  return isLong(secret) && (isEncoded ? shapes : [secret]).some((shape) => text.includes(shape))
}

/**
 * The text with every one of the secrets replaced, also as JSON, a URL, hex digits or base64 would show them.
 * For texts that others wrote: a service may echo what it was sent.
 */
export function redact(text: string, secrets: Iterable<string>): string {
  // Longest first: a secret that is a piece of another would leave the rest of that one.
  const shapes = new Set([...secrets].flatMap(shapesOf))
  return hidden(
    text,
    [...shapes].toSorted((one, other) => other.length - one.length),
  )
}

/** Looks only at what is left between the marks: a secret of one character is in them, too. */
function hidden(text: string, [shape, ...others]: readonly string[]): string {
  if (shape === undefined) return text
  const pieces = text.split(shape).map((piece) => hidden(piece, others))
  return pieces.join(REDACTED)
}

function isLong(secret: string): boolean {
  return secret.length >= MIN_SECRET_LENGTH
}

function shapesOf(secret: string): string[] {
  if (secret === '') return []
  const encoded = formEncoded(secret)
  const bytes = Buffer.from(secret)
  const hex = bytes.toString('hex')
  const json = JSON.stringify(secret).slice(1, -1)
  const ascii = json.replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
  const percent = [encodeURIComponent(bytes.toString()), encoded, encoded.replaceAll('+', '%20')]
  const inPath = percent.map((text) => text.replaceAll('%2F', '/'))
  return [
    secret,
    // Some writers of JSON escape all but ASCII, or the slash, too.
    ...[json, ascii].flatMap((text) => [text, text.replaceAll('/', String.raw`\/`)]),
    // Either case of hex digits is right in a URL.
    ...[...percent, ...inPath].flatMap((text) => [text, text.replace(/%../g, (byte) => byte.toLowerCase())]),
    hex,
    hex.toUpperCase(),
    ...base64Shapes(secret),
    // Within HTTP Basic, whose parts are form-encoded first.
    ...(encoded === secret ? [] : base64Shapes(encoded)),
  ]
}

function base64Shapes(secret: string): string[] {
  const bytes = Buffer.from(secret)
  const base64 = bytes.toString('base64')
  const urlSafe = (text: string): string => text.replaceAll('+', '-').replaceAll('/', '_')
  const inOthers = isLong(secret) ? [0, 1, 2].map((before) => base64Within(bytes, before)) : []
  return [base64, base64.replace(/=+$/, ''), ...inOthers].flatMap((text) => [text, urlSafe(text)])
}

/** The base64 of these bytes after `before` others (modulo 3): the characters that depend on them alone. */
function base64Within(bytes: Buffer, before: number): string {
  const base64 = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64')
  return base64.slice(Math.ceil((before * 4) / 3), Math.floor(((before + bytes.length) * 4) / 3))
}

/** Compares values; secrets, which all look the same, by their content. */
export function isSame(one: unknown, other: unknown): boolean {
  if (one instanceof Secret && other instanceof Secret) return one.reveal() === other.reveal()
  if (typeof one !== 'object' || typeof other !== 'object' || one === null || other === null)
    return one === other
  const keys = new Set([...Object.keys(one), ...Object.keys(other)])
  return [...keys].every((key) => isSame(Reflect.get(one, key), Reflect.get(other, key)))
}
