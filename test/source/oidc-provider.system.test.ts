// A real server that knows private_key_jwt (oidc-provider), a real daemon, and a program that renews the
// ready-made assertion in its file: the requests are those of the plan, and none goes out without a good one.
import { generateKeyPairSync, randomUUID, type KeyObject } from 'node:crypto'
import { once } from 'node:events'
import { readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { exportJWK, SignJWT } from 'jose'
import { expect, onTestFinished, test, vi } from 'vitest'
import { startDaemon, tokenFile, type Daemon } from '../support/daemon.ts'
import { statusOf } from '../support/outside.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const LIFE_S = 20

/** What of oidc-provider is used here; it has no types. */
type Provider = new (
  issuer: string,
  configuration: object,
) => { callback: () => RequestListener; on: (event: string, heard: (...given: never[]) => void) => void }

async function startProvider(publicKey: KeyObject) {
  // Its warnings about what a server needs in production are no concern of a test.
  for (const level of ['info', 'warn'] as const) {
    const silenced = vi.spyOn(console, level).mockImplementation(() => undefined)
    onTestFinished(() => silenced.mockRestore())
  }
  const name = 'oidc-provider'
  const { default: OidcProvider } = (await import(name)) as { default: Provider }
  const server: Server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const provider = new OidcProvider(issuer, {
    clients: [
      {
        client_id: 'kyc-program',
        grant_types: ['client_credentials'],
        redirect_uris: [],
        response_types: [],
        token_endpoint_auth_method: 'private_key_jwt',
        jwks: { keys: [{ ...(await exportJWK(publicKey)), alg: 'ES256', use: 'sig' }] },
      },
    ],
    features: { clientCredentials: { enabled: true }, devInteractions: { enabled: false } },
    ttl: { ClientCredentials: LIFE_S },
  })
  let requests = 0
  const answers: number[] = []
  const answer = provider.callback()
  server.on('request', (asked: IncomingMessage, response: ServerResponse) => {
    requests += 1
    response.on('finish', () => answers.push(response.statusCode))
    answer(asked, response)
  })
  return { issuer, requests: () => requests, answers }
}

/** The program that renews an assertion. */
function createRenewer(file: string, { issuer, privateKey }: { issuer: string; privateKey: KeyObject }) {
  const texts: string[] = []
  const sign = async (): Promise<string> => {
    const text = await new SignJWT({ jti: randomUUID() })
      .setProtectedHeader({ alg: 'ES256' })
      .setIssuer('kyc-program')
      .setSubject('kyc-program')
      .setAudience(issuer)
      .setIssuedAt()
      .setExpirationTime('1m')
      .sign(privateKey)
    texts.push(text)
    return text
  }
  return {
    texts,
    sign,
    async renew(): Promise<void> {
      writeFileSync(`${file}.new`, await sign(), { mode: 0o600 })
      renameSync(`${file}.new`, file)
    },
  }
}

const serviceOf = (file: string) => ({
  credentials: { apiKey: 'kyc-program', apiSecret: null },
  service: { preset: 'oauth2', tokenUrl: '/token', send: 'assertion', assertion: { file } },
})

/** Everything that the daemon has written. */
function writtenBy(daemon: Daemon, directory: string): string {
  const files = ['run', 'state'].flatMap((name) =>
    readdirSync(join(directory, name)).map((entry) => join(directory, name, entry)),
  )
  const texts = files.filter((path) => statSync(path).isFile()).map((path) => readFileSync(path, 'utf8'))
  return [daemon.stderr(), ...texts].join('\n')
}

test(
  'renewals ask nothing, and a file that is missing or torn costs no request',
  { timeout: 120_000 },
  async () => {
    const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const provider = await startProvider(publicKey)
    const directory = await tempDirectory()
    const file = join(directory, 'assertion')
    const renewer = createRenewer(file, { issuer: provider.issuer, privateKey })
    await renewer.renew()
    const daemon = startDaemon({ directory, baseUrl: provider.issuer, config: serviceOf(file) })
    await expectUntil('a token', () => tokenFile(daemon))
    const startedAtMs = Date.now()
    for (let renewal = 0; renewal < 5; renewal += 1) await renewer.renew()
    await expectUntil('the next token', () => provider.requests() > 1, { withinMs: 30_000 })
    // A life of 20 s is renewed after 10 s.
    expect(Date.now() - startedAtMs).toBeGreaterThan(8_000)

    const torn = (await renewer.sign()).slice(0, -10)
    const ways: [string, () => void, RegExp][] = [
      ['missing', () => rmSync(file), /assertion \(service\.assertion\.file\) is not there$/],
      ['torn', () => writeFileSync(file, torn), /is not whole: its signature is too short$/],
    ]
    for (const [way, spoil, detail] of ways) {
      spoil()
      const before = provider.requests()
      await expectUntil(
        `the failure of one that is ${way}, and the end of the token`,
        async () => {
          const { failure, state } = await statusOf(daemon)
          return failure?.reason === 'assertion' && detail.test(failure.detail) && state === 'expired'
        },
        { withinMs: 60_000 },
      )
      expect(provider.requests()).toBe(before)
      await renewer.renew()
      const isReady = async (): Promise<boolean> => (await statusOf(daemon)).state === 'ready'
      await expectUntil('a token again', isReady, { withinMs: 20_000 })
      expect(provider.requests()).toBe(before + 1)
    }
    expect(new Set(provider.answers)).toEqual(new Set([200]))
    expect(daemon.records('alert')).toEqual([])
    const written = writtenBy(daemon, directory)
    for (const text of [...renewer.texts, torn]) expect(written).not.toContain(text.split('.')[2])
  },
)
