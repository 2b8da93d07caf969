// The assertion by which the service knows the account (RFC 7523): signed here, or read from its file.
import { randomUUID, type KeyObject } from 'node:crypto'
import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { decodeJwt, SignJWT } from 'jose'
import { privateKeyOf } from '../config/secrets.ts'
import type { PairConfig, SignedAssertion } from '../config/config.ts'
import { formatDuration } from '../lib/duration.ts'
import { errorCode } from '../lib/error.ts'

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
    .setProtectedHeader({
      ...withoutNull({ typ: 'JWT', kid: keyId, ...header }),
      alg: algorithm,
    })
    .sign(privateKeyOf(key.reveal()) as KeyObject)
}

/** Null leaves one out: some services refuse claims that they do not know. */
function withoutNull(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null))
}

/** A ready-made assertion that may be sent, or why none can be, as a line for people. */
export type ReadyAssertion = { readonly text: string } | { readonly problem: string }

const MAX_BYTES = 16 * 1024

/**
 * Reads the assertion that another program writes to this file: one line, at most 16 KiB. `wallMs`: the time
 * by which its `exp` is judged. Its signature is the service's concern. Never rejects.
 */
export async function readAssertion(path: string, wallMs: number): Promise<ReadyAssertion> {
  const problem = (words: string) => ({ problem: `The file ${path} (service.assertion.file) ${words}` })
  let text: string
  try {
    // To open a FIFO would wait for its writer.
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
    const { bytesRead, buffer } = await file.read(Buffer.alloc(MAX_BYTES + 1), 0, MAX_BYTES + 1, 0)
    text = bytesRead > MAX_BYTES ? '' : buffer.toString('utf8', 0, bytesRead).replace(/\r?\n$/, '')
  } catch (error) {
    return problem(`cannot be read (${errorCode(error) ?? 'no code'})`)
  }
  const endMs = endOf(text)
  if (endMs === undefined) return problem('holds no JWT on one line of at most 16 KiB')
  if (endMs > wallMs) return { text }
  return problem(`holds an assertion that ended ${formatDuration(wallMs - endMs)} ago`)
}

/** The `exp` of a JWT in ms since the epoch; infinite: it has none. Undefined: the text is no JWT. */
function endOf(text: string): number | undefined {
  if (!/^(?:[\w-]+\.){2}[\w-]+$/.test(text)) return undefined
  try {
    return (decodeJwt(text).exp ?? Infinity) * 1_000
  } catch {
    return undefined
  }
}
