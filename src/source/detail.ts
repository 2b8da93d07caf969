// Texts of the service, made fit for people: one line, short, and without secrets.
import { removeUnsafe } from '../lib/display-text.ts'
import { redact } from '../lib/redaction.ts'

/** Longest detail, in characters. */
export const MAX_DETAIL_LENGTH = 200

/** Text that looks like a token: what follows `Bearer`, or JSON in base64url. */
const TOKEN_LIKE = [/\bbearer\s+\S+/gi, /\beyJ[\w-]{4,}(?:\.[\w-]*)*/g]

/**
 * The text on one line of at most MAX_DETAIL_LENGTH characters, without the secrets and without what looks
 * like a token. It is cut last, so that no part of a secret stays. Empty if it contains a secret with other
 * white space or other letter case.
 */
export function oneLine(text: string, secrets: Iterable<string>): string {
  const hidden = [...secrets].filter((secret) => secret !== '')
  // Control and formatting characters could forge lines of a log, or hide text.
  const line = removeUnsafe(text.replace(/\s+/g, ' ')).trim()
  const clean = TOKEN_LIKE.reduce((left, shape) => left.replace(shape, '[secret]'), redact(line, hidden))
  if (hidden.some((secret) => bare(clean).includes(bare(secret)))) return ''
  if (clean.length <= MAX_DETAIL_LENGTH) return clean
  // Half a surrogate pair is no character.
  return `${clean.slice(0, MAX_DETAIL_LENGTH - 1).replace(/[\uD800-\uDBFF]$/, '')}…`
}

/** The text for a comparison in which case and white space do not count. */
export function bare(text: string): string {
  return text.toLowerCase().replace(/\s/g, '')
}
