import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { run } from '../../src/commands/explain.ts'
import { remedyLine } from '../../src/host/remedy.ts'
import { jwtOf } from '../support/jwt.ts'
import { invoke } from '../support/invoke.ts'
import { tempDirectory } from '../support/temp-directory.ts'

async function explain(options: Record<string, string>, input = ''): Promise<string> {
  const { status, output } = invoke(run, options, { input })
  expect(await status).toBe(0)
  return output()
}
/** The path of a configuration with these settings. */
async function configWith(settings: object): Promise<string> {
  const credentials = { apiKey: { env: 'NOT_SET' }, apiSecret: { file: 'not-there' } }
  const config = join(await tempDirectory(), 'c.json')
  await writeFile(config, JSON.stringify({ baseUrl: 'https://api.example.com', credentials, ...settings }))
  return config
}
const said = (status: string, body: string): Promise<string> => explain({ status, body: '-' }, body)

describe('explain', () => {
  it('explains a refusal, what becomes of it and what to do', async () => {
    const text = await said('500', JSON.stringify({ detail: 'Your account is not active' }))
    expect(text).toMatch(/^Row: 2 of 11 .*: permanent$/m)
    expect(text).toMatch(/^Reason: account-inactive$/m)
    expect(text).toMatch(/^Detail: Your account is not active$/m)
    expect(text).toMatch(/^Then: one alert, and no request until/m)
    expect(text).toContain(`Remedy: ${remedyLine('account-inactive', { account: undefined, isUnit: false })}`)
  })

  it('reads the body from a file', async () => {
    const body = join(await tempDirectory(), 'body.json')
    await writeFile(body, 'Account not found')
    expect(await explain({ status: '404', body })).toMatch(/^Reason: account-not-found$/m)
    expect(await explain({ status: '404', body })).toMatch(
      /^Remedy: .*; look for quotes or blanks around a key/m,
    )
    await writeFile(body, 'Account not found'.padEnd(70_000))
    expect(await explain({ status: '404', body })).toMatch(/^Reason: rejected$/m)
    expect(await explain({ status: '200', body })).toMatch(/^Detail: .*longer than 64 KiB/m)
  })

  it.each([
    ['503', '', /^Then: asked again after 0\.5 s to 1 s; .*up to 5 min, or 1 min/m],
    ['429', 'Retry-After: 120', /^Then: asked again after 2 min to 2 min 24 s, not before/m],
    ['429', '', /^Then: asked again after 1 min to 1 min 12 s;/m],
    ['403', '', /^Then: an alert, and asked again every 5 min to 10 min$/m],
    ['503', 'retry-AFTER:  30 ', /not before the 30 s of Retry-After/],
  ])('says when it would ask again after %s with %j', async (status, header, sentence) => {
    expect(await explain({ status, ...(header && { header }) })).toMatch(sentence)
  })

  it('says the life of a token, and not the token; one that has expired is none', async () => {
    const accessToken = jwtOf({ iat: 1_000, exp: 1_000 + 3_600 })
    const text = await said('200', JSON.stringify({ accessToken }))
    expect(text).toMatch(/^Row: 1 of 11 .*: token$/m)
    expect(text).toContain('It lives 1 h by its own word; refreshed after about 40 min')
    expect(text).not.toContain(accessToken)
    expect(await said('200', '{"accessToken":"opaque"}')).toContain('15 min is assumed (refresh.maxAge)')
    const expired = JSON.stringify({ accessToken: jwtOf({ iat: 2_000, exp: 1_000 }) })
    expect(await said('200', expired)).toMatch(/^Row: (?:[2-9]|1[01]) of .*\nReason: malformed-answer$/m)
  })

  it('reads the described service from the configuration, and none of its secrets', async () => {
    const service = { preset: 'oauth2', tokenUrl: '/oauth/token' }
    const config = await configWith({ service, refresh: { maxAge: '5m' } })
    const explained = (status: string, body: object): Promise<string> =>
      explain({ status, body: '-', config }, JSON.stringify(body))
    expect(await explained('401', { error: 'invalid_client' })).toMatch(
      /^Row: \d+ of 13 .*: permanent\nReason: account-not-found$/m,
    )
    const granted = { access_token: 'opaque', expires_in: '60' }
    expect(await explained('200', granted)).toContain('It lives 1 min by the word of the answer')
    expect(await explained('200', { access_token: 'opaque' })).toContain('5 min is assumed')
    const faulty = await configWith({ service: { send: 'xml' } })
    await expect(explain({ status: '200', config: faulty })).rejects.toMatchObject({ status: 78 })
  })

  it('knows that with `share` a refusal holds for all hosts, and outlives an orderly stop', async () => {
    const explained = async (share: object | null): Promise<string> =>
      explain({ status: '404', body: '-', config: await configWith({ share }) }, 'Account not found')
    expect(await explained(null)).toMatch(/^Then: one alert, .* is started after an orderly stop;/m)
    expect(await explained({ servers: ['redis.example.com:6379'] })).toMatch(
      /^Then: one alert for all hosts that share, .* asks only if the shared store is away or the refusal is an hour old/m,
    )
  })

  it('says what it was not given', async () => {
    await expect(explain({})).rejects.toThrow(/--status/)
    for (const status of ['', 'five', '99', '1000', '-1']) {
      await expect(explain({ status })).rejects.toThrow(/--status/)
    }
    await expect(explain({ status: '500', body: '/nowhere/body' })).rejects.toThrow(/--body.*ENOENT/)
  })
})
