// The pair: what makes another one, what of it a fleet shares, and what no log may show.
import { expect, it } from 'vitest'
import { accountText, isSamePart, pairText, revealAll } from '../../src/config/config.ts'
import { useConfigFiles } from '../support/config-files.ts'

const files = useConfigFiles()
const credentials = { apiKey: 'key-0815', apiSecret: 'secret-1' }
const readyMade = (file: string): object => ({ send: 'assertion', assertion: { file, as: 'client' } })

/** How many pairs these settings make. */
async function pairsOf(...each: object[]): Promise<number> {
  const pairs = await Array.fromAsync(each, async (settings) => (await files.load(settings)).pair)
  return new Set(pairs.map(pairText)).size
}

it.each([
  [{ request: { timeout: '1s' } }, {}],
  [{ credentials: { ...credentials, expiresAt: '2027-03-01' } }, {}],
  [{ service: { use: { prefix: '' }, refusals: [], lifetime: 'a' } }, {}],
  [{ service: { headers: { A: '1', B: '2' } } }, { service: { headers: { B: '2', A: '1' } } }],
  [{ service: readyMade('one') }, { service: readyMade('other') }],
])('%j is the pair of %j', async (one, other) => expect(await pairsOf(one, other)).toBe(1))

it('is another one by each setting that makes the request', async () => {
  const services = [
    {},
    { send: 'form' },
    { names: { apiKey: 'user' } },
    { parameters: { realm: 'one' } },
    { headers: { realm: 'one' } },
    { token: 'data.token' },
    readyMade('one'),
  ].map((service) => ({ service }))
  const others = [{ apiKey: 'key-0816' }, { apiSecret: 'secret-2' }].map((changed) => ({
    credentials: { ...credentials, ...changed },
  }))
  expect(await pairsOf(...services, ...others)).toBe(services.length + others.length)
})

it('is shared without the client certificate; all its secrets are known, those of headers and a proxy, too', async () => {
  files.write('h', 'of-a-header')
  const config = await files.load({
    service: { send: 'basic', headers: { 'X-Api-Token': { file: 'h' } } },
    request: { proxy: { url: 'http://p:1', user: 'u', password: 'of-the-proxy' } },
  })
  const { pair } = config
  const withCertificate = { ...pair, clientCertificate: { cert: 'PEM', key: pair.apiSecret! } }
  expect(accountText(withCertificate)).toBe(accountText(pair))
  expect(pairText(withCertificate)).not.toBe(pairText(pair))
  expect(revealAll(config)).toEqual(['key-0815', 'secret-1', 'of-a-header', 'of-the-proxy'])
  expect(isSamePart(pair, (await files.load({ service: { headers: { 'X-A': 'b' } } })).pair)).toBe(false)
})
