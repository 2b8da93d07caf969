// A value that guards itself: it prints as [secret] wherever it is printed, and is read only by reveal().
import { inspect } from 'node:util'

const SHOWN = '[secret]'

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
  // Longest first: a secret that is a piece of another would leave the rest of that one.
  const shapes = [...secrets].flatMap(shapesOf).toSorted((one, other) => other.length - one.length)
  return shapes.reduce((clean, shape) => clean.replaceAll(shape, SHOWN), text)
}

function shapesOf(secret: string): string[] {
  if (secret === '') return []
  const base64 = Buffer.from(secret).toString('base64')
  return [
    secret,
    JSON.stringify(secret).slice(1, -1),
    encodeURIComponent(secret),
    base64,
    base64.replace(/=+$/, ''),
    Buffer.from(secret).toString('base64url'),
  ]
}
