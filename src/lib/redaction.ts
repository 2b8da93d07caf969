// Finds secrets in texts, as they are or encoded, and removes them.
import { decodedForms } from './decoding.ts'
import { REDACTED } from './secret.ts'

/** A shorter text is found in others by chance. */
const MIN_SECRET_LENGTH = 8

/**
 * Reports whether the text is or contains the secret, as it is or encoded. With `isEncoded` false, only the
 * secret as it is counts as contained. A short secret is never counted as contained.
 */
export function holdsSecret(text: string, secret: string, { isEncoded = true } = {}): boolean {
  const shapes = shapesOf(secret)
  if (shapes.includes(text)) return true
  if (!isLong(secret)) return false
  if (!isEncoded) return text.includes(secret)
  return shapes.some((shape) => text.includes(shape)) || isDecodedIn(text, [secret])
}

/** Returns `redact` for these secrets and many texts: what they may look like is worked out once. */
export function createRedaction(secrets: Iterable<string>): (text: string) => string {
  const all = [...secrets].filter((secret) => secret !== '')
  // Longest first: a secret that is a piece of another would leave the rest of that one.
  const shapes = [...new Set(all.flatMap(shapesOf))].toSorted((one, other) => other.length - one.length)
  return (text) => {
    // Marks come last: a secret of one character is in them, too.
    const pieces = shapes.reduce((parts, shape) => parts.flatMap((part) => part.split(shape)), [text])
    return pieces.map((piece) => withoutDecoded(piece, all)).join(REDACTED)
  }
}

/**
 * The text with every one of the secrets replaced, also as JSON, a URL, a form, base64, hex or HTML would
 * show them, and as these would one after the other. For texts that others wrote: a service may echo what it
 * was sent.
 */
export function redact(text: string, secrets: Iterable<string>): string {
  return createRedaction(secrets)(text)
}

/** Each word that becomes a secret, or contains it, when it is decoded is replaced; else all of the text. */
function withoutDecoded(text: string, secrets: readonly string[]): string {
  if (!isDecodedIn(text, secrets)) return text
  const words = text.split(/(\s+)/).map((word) => (isDecodedIn(word, secrets) ? null : word))
  const isRestClean = !isDecodedIn(words.map((word) => word ?? '\0').join(''), secrets)
  return isRestClean ? words.map((word) => word ?? REDACTED).join('') : REDACTED
}

function isDecodedIn(text: string, secrets: readonly string[]): boolean {
  const [unescaped, ...others] = decodedForms(text)
  return secrets.some((secret) =>
    [unescaped, ...(isLong(secret) ? others : [])].some((form) => spaced(form).includes(spaced(secret))),
  )
}

/** In a form, a plus is a space. */
function spaced(text: string): string {
  return text.replaceAll('+', ' ')
}

function isLong(secret: string): boolean {
  return secret.length >= MIN_SECRET_LENGTH
}

function shapesOf(secret: string): string[] {
  if (secret === '') return []
  const encoded = formEncoded(secret)
  const json = JSON.stringify(secret).slice(1, -1)
  const ascii = json.replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
  // By way of bytes: half of a surrogate pair cannot be encoded.
  const inUrl = encodeURIComponent(Buffer.from(secret).toString())
  const percent = [inUrl, encoded, encoded.replaceAll('+', '%20')]
  const inPath = percent.map((text) => text.replaceAll('%2F', '/'))
  return [
    secret,
    ...hexShapes(secret),
    // Some writers of JSON escape all but ASCII, or the slash, too.
    ...[json, ascii].flatMap((text) => [text, text.replaceAll('/', String.raw`\/`)]),
    // Either case of hex digits is right in a URL.
    ...[...percent, ...inPath].flatMap((text) => [text, text.replace(/%../g, (byte) => byte.toLowerCase())]),
    ...base64Shapes(secret),
    // Within HTTP Basic, whose parts are form-encoded first.
    ...(encoded === secret ? [] : base64Shapes(encoded)),
  ]
}

/** Beginning at any digit of a longer text in hex. */
function hexShapes(secret: string): string[] {
  const hex = Buffer.from(secret).toString('hex')
  return isLong(secret) ? [hex, hex.toUpperCase()] : []
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

/** As in the body of a form. */
export function formEncoded(text: string): string {
  return new URLSearchParams({ '': text }).toString().slice(1)
}
