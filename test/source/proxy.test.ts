import { describe, expect, test } from 'vitest'
import { exitStatus } from '../../src/lib/error.ts'
import { proxyEnvOf } from '../../src/source/fetch-token.ts'

const service = new URL('https://api.example.com')
const proxyOf = (env: NodeJS.ProcessEnv): NodeJS.ProcessEnv => proxyEnvOf(service, env)

describe('the proxy of the environment', () => {
  test('is none where no variable names one', () => {
    for (const env of [{}, { HTTPS_PROXY: '' }, { https_proxy: ' ' }, { HTTP_PROXY: 'http://proxy:1' }])
      expect(proxyOf(env)).toEqual({})
  })

  test('is https_proxy, else HTTPS_PROXY, and so are the exceptions', () => {
    const upper = { HTTPS_PROXY: 'http://upper:3128', NO_PROXY: 'upper.example' }
    const lower = { https_proxy: 'http://lower:3128', no_proxy: 'lower.example' }
    expect(proxyOf(upper)).toEqual({ https_proxy: 'http://upper:3128/', no_proxy: 'upper.example' })
    expect(proxyOf({ ...upper, ...lower })).toEqual({
      https_proxy: 'http://lower:3128/',
      no_proxy: 'lower.example',
    })
    expect(proxyOf({ ...upper, https_proxy: '', no_proxy: '' })).toEqual(proxyOf(upper))
    expect(proxyOf({ https_proxy: 'http://lower:3128' })).toMatchObject({ no_proxy: '' })
  })

  test('may have white space around it, no scheme, a scheme in any case, TLS and a password', () => {
    const forms: [string, string][] = [
      [' http://proxy:3128\n', 'http://proxy:3128/'],
      ['proxy:3128', 'http://proxy:3128/'],
      ['HTTP://proxy:3128', 'http://proxy:3128/'],
      ['https://proxy', 'https://proxy/'],
      ['user:pass@proxy:3128', 'http://user:pass@proxy:3128/'],
    ]
    for (const [HTTPS_PROXY, href] of forms) expect(proxyOf({ HTTPS_PROXY }).https_proxy).toBe(href)
  })

  test('is not asked about a service on loopback, not even where it is none', () => {
    expect(proxyEnvOf(new URL('http://127.0.0.1:8080'), { https_proxy: 'socks5://proxy' })).toEqual({})
  })

  test('that is no HTTP proxy is a fault of the configuration', () => {
    for (const HTTPS_PROXY of [
      'socks5://proxy:1080',
      'nohttp://proxy',
      'http:///',
      'http://user:pass@',
      'http://a b',
      'http://x:y',
    ]) {
      const message = expect.stringMatching(
        /^(?!.*pass)HTTPS_PROXY .*http:\/\/proxy\.example\.com:3128/,
      ) as string
      const fault = expect.objectContaining({ status: exitStatus.configuration, message }) as Error
      expect(() => proxyOf({ HTTPS_PROXY }), HTTPS_PROXY).toThrow(fault)
    }
  })
})
