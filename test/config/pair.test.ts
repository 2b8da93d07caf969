// The pair: what makes another one, what of it a fleet shares, and what no log may show.
import { expect, it } from 'vitest'
import { accountText, isSamePart, pairText, revealAll } from '../../src/config/config.ts'
import { useConfigFiles } from '../support/config-files.ts'

const files = useConfigFiles()
const signed = { send: 'assertion', assertion: { file: 'jwt', as: 'client' } }

it('is another one by each setting that makes the request, and by nothing else', async () => {
  const textOf = async (settings: object): Promise<string> => pairText((await files.load(settings)).pair)
  const one = await textOf({ service: { headers: { 'X-A': '1', 'X-B': '2' } } })
  expect(
    await textOf({ service: { headers: { 'X-B': '2', 'X-A': '1' }, refusals: [], lifetime: 'a' } }),
  ).toBe(one)
  const expiring = { apiKey: 'key-0815', apiSecret: 'secret-1', expiresAt: '2027-03-01' }
  const same = [
    {},
    { request: { timeout: '1s' } },
    { credentials: expiring },
    { service: { use: { prefix: '' } } },
  ]
  const sameTexts: string[] = []
  for (const settings of same) sameTexts.push(await textOf(settings))
  expect(new Set(sameTexts).size).toBe(1)
  const others = [
    {},
    { credentials: { ...expiring, apiKey: 'key-0816' } },
    { credentials: { ...expiring, apiSecret: 'secret-2' } },
    { service: { send: 'form' } },
    { service: { names: { apiKey: 'user' } } },
    { service: { parameters: { realm: 'one' } } },
    { service: { headers: { 'X-Client': 'one' } } },
    { service: { token: 'data.token' } },
    { service: signed },
  ]
  const texts: string[] = []
  for (const settings of others) texts.push(await textOf(settings))
  expect(new Set(texts).size).toBe(others.length)
  const elsewhere = { service: { ...signed, assertion: { ...signed.assertion, file: 'other' } } }
  expect(await textOf(elsewhere)).toBe(texts.at(-1))
})

it('is shared without the client certificate; all its secrets are known, those of headers and a proxy, too', async () => {
  files.write('h', 'of-a-header')
  const config = await files.load({
    service: { send: 'basic', headers: { 'X-Api-Token': { file: 'h' } } },
    request: { proxy: { url: 'http://p:1', user: 'u', password: 'of-the-proxy' } },
  })
  const { pair } = config
  const certificate = { cert: 'PEM', key: pair.apiSecret! }
  expect(accountText({ ...pair, clientCertificate: certificate })).toBe(accountText(pair))
  expect(pairText({ ...pair, clientCertificate: certificate })).not.toBe(pairText(pair))
  expect(revealAll(config)).toEqual(['key-0815', 'secret-1', 'of-a-header', 'of-the-proxy'])
  expect(isSamePart(pair, (await files.load({ service: { headers: { 'X-A': 'b' } } })).pair)).toBe(false)
})
