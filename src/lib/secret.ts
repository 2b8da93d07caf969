// Secrets: a value that only reveal() reads and that prints as [secret], and how one is found in a text: as it is,
// URL-encoded, in base64 and JSON-escaped.
import { inspect } from 'node:util'

export const REDACTED = '[secret]'

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

/** A shorter secret is found in ordinary words by chance. */
const MIN_SECRET_LENGTH = 8
/** Likewise, of a piece of base64. */
const MIN_BASE64_LENGTH = 4

/**
 * Returns the function that replaces these secrets in a text. One of fewer than 8 characters stays, unless
 * `isShortReplaced`: for words that others wrote, which may echo it.
 */
export function createRedaction(
  secrets: Iterable<string>,
  { isShortReplaced = false } = {},
): (text: string) => string {
  const least = isShortReplaced ? 1 : MIN_SECRET_LENGTH
  const replaced = [...secrets].filter(({ length }) => length >= least)
  // Longest first: a secret that is a piece of another would leave the rest of that one.
  const forms = [...new Set(replaced.flatMap(formsOf))].toSorted((one, other) => other.length - one.length)
  return (text) =>
    // Marks come last: a secret of one character is in them, too.
    forms.reduce((parts, form) => parts.flatMap((part) => part.split(form)), [text]).join(REDACTED)
}

/** Reports whether the text is the secret or, unless that has fewer than 8 characters, contains it. */
export function holdsSecret(text: string, secret: string): boolean {
  const forms = formsOf(secret)
  return secret.length < MIN_SECRET_LENGTH ? forms.includes(text) : forms.some((form) => text.includes(form))
}

/** The secret in each form in which others show it; none of an empty one. */
export function formsOf(secret: string): string[] {
  if (secret === '') return []
  const json = JSON.stringify(secret).slice(1, -1)
  const ascii = json.replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
  // Some writers of JSON escape all but ASCII, or the slash, too.
  const inJson = [json, ascii].flatMap((text) => [text, text.replaceAll('/', String.raw`\/`)])
  // By way of bytes: half of a surrogate pair cannot be encoded.
  const inUrl = [encodeURIComponent(Buffer.from(secret).toString()), formEncoded(secret)]
  // Within a login, too, where it may be form-encoded (RFC 6749, section 2.3.1), and within the JSON of a JWT.
  const base64 = [secret, ...inJson, formEncoded(secret)]
    .flatMap((text) => [0, 1, 2].map((before) => base64After(text, before)))
    .filter(({ length }) => length >= MIN_BASE64_LENGTH)
  return [
    secret,
    ...inJson,
    // Either case of hex digits is right in a URL.
    ...inUrl.flatMap((text) => [text, text.replace(/%../g, (byte) => byte.toLowerCase())]),
    ...base64.flatMap((text) => [text, text.replaceAll('+', '-').replaceAll('/', '_')]),
  ]
}

/** In base64, after so many other bytes (modulo 3): the characters that depend on it alone. */
function base64After(secret: string, before: number): string {
  const bytes = Buffer.concat([Buffer.alloc(before), Buffer.from(secret)])
  return bytes.toString('base64').slice(Math.ceil((before * 4) / 3), Math.floor((bytes.length * 4) / 3))
}

/** As in the body of a form. */
export function formEncoded(text: string): string {
  return new URLSearchParams({ '': text }).toString().slice(1)
}
