// The assertion by which the service knows the account (RFC 7523): signed here, or read from its file.
import { createPrivateKey, randomUUID } from 'node:crypto'
import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { decodeJwt, SignJWT } from 'jose'
import type { SignedAssertion } from '../config/config.ts'
import type { Secret } from '../lib/secret.ts'
import { formatDuration } from '../lib/duration.ts'
import { errorCode } from '../lib/error.ts'
import type { ReadyAssertion } from '../token/outcome.ts'

/**
 * A JWT that is valid from `wallMs` on: the service's clock as far as it is known, else ours. `tokenUrl`: its
 * audience, unless another one is set.
 */
export async function signedAssertion(
  { key, algorithm, keyId, audience, lifetimeMs, claims, header }: SignedAssertion,
  { issuer, tokenUrl, wallMs }: { issuer: Secret; tokenUrl: string; wallMs: number },
): Promise<string> {
  const iss = issuer.reveal()
  const iat = Math.floor(wallMs / 1_000)
  const exp = iat + Math.ceil(lifetimeMs / 1_000)
  const standard = { iss, sub: iss, aud: audience ?? tokenUrl, jti: randomUUID() }
  const text = key.reveal()
  return new SignJWT(withoutNull({ ...standard, iat, exp, ...claims }))
    .setProtectedHeader({
      ...withoutNull({ typ: 'JWT', ...header }),
      alg: algorithm,
      ...(keyId !== null && { kid: keyId }),
    })
    .sign(
      createPrivateKey(text.trimStart().startsWith('{') ? { key: JSON.parse(text), format: 'jwk' } : text),
    )
}

/** Null leaves one out: some services refuse claims that they do not know. */
function withoutNull(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null))
}

const MAX_BYTES = 16 * 1024

/**
 * Reads the assertion that another program writes to this file: one line, at most 16 KiB. `wallMs`: the time
 * by which its `exp` is judged. Its signature is the service's concern. Never rejects.
 */
export async function readAssertion(path: string, wallMs: number): Promise<ReadyAssertion> {
  const read = await readLine(path, wallMs)
  if ('text' in read) return read
  return { problem: `The file ${path} (service.assertion.file) ${read.problem}` }
}

/** `problem`: words after the name of the file. */
async function readLine(path: string, wallMs: number): Promise<ReadyAssertion> {
  let text: string
  try {
    // To open a FIFO would wait for its writer.
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
    const { bytesRead, buffer } = await file.read(Buffer.alloc(MAX_BYTES + 1), 0, MAX_BYTES + 1, 0)
    if (bytesRead > MAX_BYTES) return { problem: 'is larger than 16 KiB, and so no assertion' }
    text = buffer.toString('utf8', 0, bytesRead).replace(/\r?\n$/, '')
  } catch (error) {
    const code = errorCode(error) ?? 'no code'
    return { problem: code === 'ENOENT' ? 'is not there' : `cannot be read (${code})` }
  }
  const endMs = endOf(text)
  if (endMs === undefined) return { problem: 'holds no JWT on one line' }
  return endMs <= wallMs
    ? { problem: `holds an assertion that ended ${formatDuration(wallMs - endMs)} ago` }
    : { text }
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
