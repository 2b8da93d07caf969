// A value that guards itself: it prints as [secret] wherever it is printed, and is read only by reveal().
import { inspect } from 'node:util'

const SHOWN = '[secret]'

export class Secret {
  readonly #value: string
  constructor(value: string) {
    this.#value = value
  }
  /** The value itself. Every call is a place where it could leak. */
  reveal(): string {
    return this.#value
  }
  toString(): string {
    return SHOWN
  }
  toJSON(): string {
    return SHOWN
  }
  [inspect.custom](): string {
    return SHOWN
  }
}

/**
 * The text with every one of the secrets replaced, also as JSON, a URL or base64 would show them. For texts that
 * others wrote: a service may echo what it was sent.
 */
export function redact(text: string, secrets: Iterable<string>): string {
  let clean = text
  for (const secret of secrets) {
    if (secret === '') continue
    for (const shape of shapesOf(secret)) clean = clean.replaceAll(shape, SHOWN)
  }
  return clean
}

function shapesOf(secret: string): Set<string> {
  const base64 = Buffer.from(secret).toString('base64')
  return new Set([
    secret,
    JSON.stringify(secret).slice(1, -1),
    encodeURIComponent(secret),
    base64,
    base64.replace(/=+$/, ''),
    Buffer.from(secret).toString('base64url'),
  ])
}
