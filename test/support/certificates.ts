// Certificates for tests, made when the test runs: X.509 in DER (RFC 5280), of P-256 keys.
import { createPrivateKey, generateKeyPairSync, randomBytes, sign } from 'node:crypto'

/** A certificate and its private key, both PEM. */
export interface Certificate {
  readonly cert: string
  readonly key: string
  readonly subject: string
}

const DAY_MS = 86_400_000

interface Options {
  readonly subject: string
  /** Null: it signs itself. */
  readonly authority: Certificate | null
  readonly extensions: Buffer
  readonly notBeforeMs?: number
  readonly notAfterMs?: number
}

/** An authority that signs itself. */
export function createAuthority(subject = 'Test authority'): Certificate {
  const isAuthority = extension('2.5.29.19', sequence(Buffer.from([0x01, 0x01, 0xff])))
  return issue({ subject, authority: null, extensions: isAuthority })
}

/** A server's certificate for these DNS names, signed by the authority; valid until tomorrow. */
export function createCertificate(
  authority: Certificate,
  { names, ...valid }: { names: readonly string[]; notBeforeMs?: number; notAfterMs?: number },
): Certificate {
  const alternatives = sequence(...names.map((name) => tagged(0x82, Buffer.from(name, 'ascii'))))
  const extensions = extension('2.5.29.17', alternatives)
  return issue({ subject: names[0] ?? 'nobody', authority, extensions, ...valid })
}

function issue({ subject, authority, extensions, ...valid }: Options): Certificate {
  const { notBeforeMs = Date.now() - DAY_MS, notAfterMs = Date.now() + DAY_MS } = valid
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const signer = authority === null ? keys.privateKey : createPrivateKey(authority.key)
  const ecdsaWithSha256 = sequence(objectId('1.2.840.10045.4.3.2'))
  const content = sequence(
    tagged(0xa0, tagged(0x02, Buffer.from([2]))),
    tagged(0x02, Buffer.concat([Buffer.from([1]), randomBytes(15)])),
    ecdsaWithSha256,
    distinguishedName(authority?.subject ?? subject),
    sequence(utcTime(notBeforeMs), utcTime(notAfterMs)),
    distinguishedName(subject),
    keys.publicKey.export({ type: 'spki', format: 'der' }),
    tagged(0xa3, sequence(extensions)),
  )
  const signature = sign('sha256', content, signer)
  const der = sequence(content, ecdsaWithSha256, tagged(0x03, Buffer.concat([Buffer.from([0]), signature])))
  const lines = der.toString('base64').match(/.{1,64}/g) ?? []
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`,
    key: keys.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    subject,
  }
}

function tagged(tag: number, content: Buffer): Buffer {
  const { length } = content
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
  return Buffer.concat([Buffer.from([tag, ...size]), content])
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return tagged(0x30, Buffer.concat(parts))
}

function objectId(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number)
  return tagged(0x06, Buffer.from([first * 40 + second, ...rest.flatMap(base128)]))
}

function base128(value: number): number[] {
  const digits = [value & 0x7f]
  for (let left = value >> 7; left > 0; left >>= 7) digits.unshift((left & 0x7f) | 0x80)
  return digits
}

function distinguishedName(commonName: string): Buffer {
  const attribute = sequence(objectId('2.5.4.3'), tagged(0x0c, Buffer.from(commonName)))
  return sequence(tagged(0x31, attribute))
}

function utcTime(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replace(/\D/g, '').slice(2, 14)
  return tagged(0x17, Buffer.from(`${digits}Z`))
}

function extension(id: string, value: Buffer): Buffer {
  return sequence(objectId(id), tagged(0x04, value))
}
