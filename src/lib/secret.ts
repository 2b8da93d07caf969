// A secret value, which only reveal() reads and which prints as [secret].
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

/** Compares values; secrets, which all look the same, by their content. */
export function isSame(one: unknown, other: unknown): boolean {
  if (one === other) return true
  if (one instanceof Secret && other instanceof Secret) return one.reveal() === other.reveal()
  if (typeof one !== 'object' || typeof other !== 'object' || one === null || other === null) return false
  const keys = new Set([...Object.keys(one), ...Object.keys(other)])
  return [...keys].every((key) => isSame(Reflect.get(one, key), Reflect.get(other, key)))
}
