// The assertion by which the service knows the account (RFC 7523): signed here, or read from its file.
import { randomUUID, type KeyObject } from 'node:crypto'
import { decodeJwt, SignJWT } from 'jose'
import type { PairConfig, SignedAssertion } from '../config/config.ts'
import { readInput } from '../config/read.ts'
import { privateKeyOf, withoutNewline } from '../config/secrets.ts'
import { withTimeout, type Clock } from '../lib/clock.ts'
import { formatDuration } from '../lib/duration.ts'

/**
 * A JWT that is valid from `wallMs` on: the service's clock as far as it is known, else ours. `tokenUrl`: its
 * audience, unless another one is set.
 */
export async function signedAssertion(
  { apiKey, assertion }: PairConfig,
  { tokenUrl, wallMs }: { tokenUrl: string; wallMs: number },
): Promise<string> {
  const { key, algorithm, keyId, audience, lifetimeMs, claims, header } = assertion as SignedAssertion
  const iss = apiKey!.reveal()
  const iat = Math.floor(wallMs / 1_000)
  const times = { iat, exp: iat + Math.ceil(lifetimeMs / 1_000) }
  const standard = { iss, sub: iss, aud: audience ?? tokenUrl, jti: randomUUID(), ...times }
  return new SignJWT(withoutNull({ ...standard, ...claims }))
    .setProtectedHeader({ ...withoutNull({ typ: 'JWT', kid: keyId, ...header }), alg: algorithm })
    .sign(privateKeyOf(key.reveal()) as KeyObject)
}

/** Null leaves one out: some services refuse claims that they do not know. */
function withoutNull(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null))
}

/** A ready-made assertion that may be sent, or why none can be, as a line for people. */
export type ReadyAssertion = { readonly text: string } | { readonly problem: string }

const MAX_LENGTH = 16 * 1024
/** The longest time for which its disk is waited for. */
const READ_MS = 2_000

/**
 * Reads the assertion that another program writes to this file: one line, at most 16 KiB. `wallMs`: the time
 * by which its `exp` is judged. Its signature is the service's concern. Never rejects.
 */
export async function readAssertion(
  path: string,
  wallMs: number,
  clock: Pick<Clock, 'sleep'>,
): Promise<ReadyAssertion> {
  const problem = (words: string) => ({ problem: `The file ${path} (service.assertion.file) ${words}` })
  const read = await withTimeout(READ_MS, readInput(path), clock)
  if (read === undefined) return problem('is on a disk that does not answer')
  if (read === null || 'problem' in read) return problem(read?.problem ?? 'is not there')
  const text = withoutNewline(read.bytes.toString())
  const endMs = endOf(text)
  if (endMs === undefined) return problem('holds no JWT on one line of at most 16 KiB')
  if (endMs > wallMs) return { text }
  return problem(`holds an assertion that ended ${formatDuration(wallMs - endMs)} ago`)
}

/** The `exp` of a JWT in ms since the epoch; infinite: it has none. Undefined: the text is no JWT. */
function endOf(text: string): number | undefined {
  if (!/^(?:[\w-]+\.){2}[\w-]+$/.test(text) || text.length > MAX_LENGTH) return undefined
  try {
    return (decodeJwt(text).exp ?? Infinity) * 1_000
  } catch {
    return undefined
  }
}
