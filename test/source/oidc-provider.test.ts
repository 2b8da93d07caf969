// A real server of OAuth 2 (oidc-provider) behind TLS that wants a client certificate.
import { generateKeyPairSync, randomUUID } from 'node:crypto'
import https from 'node:https'
import type { RequestListener } from 'node:http'
import { exportJWK, SignJWT } from 'jose'
import { expect, it, onTestFinished, vi } from 'vitest'
import type { PairConfig } from '../../src/config/config.ts'
import { Secret } from '../../src/lib/secret.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { listening } from '../support/listening.ts'
import { fetchFrom, nameHas, readyMade, signing } from '../support/source.ts'

const LIFE_S = 20
const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })

/** What of oidc-provider is used here; it has no types. */
type Provider = new (
  issuer: string,
  configuration: object,
) => { proxy: boolean; callback: () => RequestListener }

/** Gives its port. */
async function startProvider(issuer: string, tls: { cert: string; key: string; ca: string }) {
  // Its warnings about what a server needs in production are no concern of a test.
  for (const level of ['info', 'warn'] as const) {
    const silenced = vi.spyOn(console, level).mockImplementation(() => undefined)
    onTestFinished(() => silenced.mockRestore())
  }
  const name = 'oidc-provider'
  const { default: OidcProvider } = (await import(name)) as { default: Provider }
  const keys = [{ ...(await exportJWK(publicKey)), alg: 'ES256', use: 'sig' }]
  // By HTTP Basic, where nothing else is said.
  const client = { grant_types: ['client_credentials'], redirect_uris: [], response_types: [] }
  const provider = new OidcProvider(issuer, {
    clients: [
      {
        ...client,
        client_id: 'kyc-program',
        token_endpoint_auth_method: 'private_key_jwt',
        token_endpoint_auth_signing_alg: 'ES256',
        jwks: { keys },
      },
      { ...client, client_id: 'of basic', client_secret: 'S3cret:&=%' },
    ],
    features: { clientCredentials: { enabled: true }, devInteractions: { enabled: false } },
    ttl: { ClientCredentials: LIFE_S },
  })
  return listening(https.createServer({ ...tls, requestCert: true }, provider.callback()))
}

it('gives a token for a signed and a ready-made assertion and for HTTP Basic, each once and by a client certificate', async () => {
  const authority = createAuthority()
  const issuer = 'https://id.login.example'
  const server = createCertificate(authority, { names: ['id.login.example'] })
  const port = await startProvider(issuer, { ...server, ca: authority.cert })
  const certificate = createCertificate(authority, { names: ['kyc-program'] })
  nameHas('127.0.0.1')
  const tokenUrl = `${issuer}:${port}/token`
  const ready = new SignJWT({ jti: randomUUID() }).setProtectedHeader({ alg: 'ES256' })
  const claimed = ready.setIssuer('kyc-program').setSubject('kyc-program').setAudience(issuer)
  const assertion = await claimed.setIssuedAt().setExpirationTime('1m').sign(privateKey)
  const key = new Secret(String(privateKey.export({ type: 'pkcs8', format: 'pem' })))
  const pairs: Record<string, Partial<PairConfig>> = {
    signed: { ...signing(key, { audience: issuer }), apiKey: new Secret('kyc-program') },
    'ready-made': readyMade({}, 'kyc-program'),
    basic: { send: 'basic', apiKey: new Secret('of basic'), apiSecret: new Secret('S3cret:&=%') },
  }
  const usual: Partial<PairConfig> = {
    token: ['access_token'],
    parameters: { grant_type: 'client_credentials' },
    clientCertificate: { cert: certificate.cert, key: new Secret(certificate.key) },
  }
  const service = { tokenUrl, lifetime: ['expires_in'] }
  const ask = (own: Partial<PairConfig>) =>
    fetchFrom(issuer, { service, pair: { ...usual, ...own }, request: { ca: authority.cert } }, assertion)
  for (const [name, pair] of Object.entries(pairs))
    expect(await ask(pair), name).toMatchObject({ kind: 'ok', answerLifeMs: LIFE_S * 1_000 })
  // The same ready-made assertion once more, no client certificate, and a wrong secret.
  for (const pair of [pairs['ready-made']!, { ...pairs['basic'], apiSecret: new Secret('wrong') }])
    expect(await ask(pair)).toMatchObject({ kind: 'transient', reason: 'rejected', status: 401 })
  expect(await ask({ ...pairs['signed'], clientCertificate: null })).toMatchObject({ kind: 'transient' })
})
