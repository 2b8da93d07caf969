import { describe, expect, test } from 'vitest'
import { exitStatus } from '../../src/lib/error.ts'
import { Secret } from '../../src/lib/secret.ts'
import { proxyOf, type Proxy } from '../../src/source/proxy.ts'

const service = new URL('https://api.example.com')
const ofEnv = (env: NodeJS.ProcessEnv): Proxy | null => proxyOf(service, { proxy: null, env })
const basic = (login: string): string => Buffer.from(login).toString('base64')

describe('the proxy of the environment', () => {
  test('is none where no variable names one', () => {
    for (const env of [{}, { HTTPS_PROXY: '' }, { https_proxy: ' ' }, { HTTP_PROXY: 'http://proxy:1' }])
      expect(ofEnv(env)).toBeNull()
  })

  test('is https_proxy, else HTTPS_PROXY', () => {
    const upper = { HTTPS_PROXY: 'http://upper:3128' }
    expect(ofEnv(upper)).toMatchObject({ host: 'upper:3128', login: null, setting: 'HTTPS_PROXY' })
    expect(ofEnv({ ...upper, https_proxy: 'http://lower:3128' })?.host).toBe('lower:3128')
    expect(ofEnv({ ...upper, https_proxy: '' })?.host).toBe('upper:3128')
  })

  test('may have white space around it, no scheme, a scheme in any case, TLS and a password', () => {
    const forms: [string, string, string | null][] = [
      [' http://proxy:3128\n', 'http://proxy:3128/', null],
      ['proxy:3128', 'http://proxy:3128/', null],
      ['HTTP://proxy:3128', 'http://proxy:3128/', null],
      ['https://proxy', 'https://proxy/', null],
      ['user:pa%20ss@proxy:3128', 'http://proxy:3128/', basic('user:pa ss')],
      ['http://user:100%@proxy:3128', 'http://proxy:3128/', basic('user:100%')],
    ]
    for (const [HTTPS_PROXY, href, login] of forms) {
      const proxy = ofEnv({ HTTPS_PROXY })
      expect({ href: proxy?.url.href, login: proxy?.login }, HTTPS_PROXY).toEqual({ href, login })
    }
  })

  test('is passed by for names, domains and ports of NO_PROXY, in lower case first', () => {
    const isPassed = (host: string, NO_PROXY: string): boolean =>
      proxyOf(new URL(`https://${host}`), { proxy: null, env: { HTTPS_PROXY: 'p:1', NO_PROXY } }) === null
    const passed: [string, string][] = [
      ['api.example.com', 'other.example, API.example.com'],
      ['example.com', '.example.com'],
      ['api.example.com', '*.example.com'],
      ['api.example.com', 'one.example example.com.'],
      ['api.example.com.', 'example.com:443'],
      ['api.example.com', 'x,*'],
      ['[::1]', '::1'],
      ['[::1]', '[::1]:443'],
      ['192.0.2.7', '10.0.0.0/8,192.0.2.0/24'],
      ['[2001:db8::1]', '2001:db8::/32'],
    ]
    const asked: [string, string][] = [
      ['api.example.com', 'ample.com'],
      ['myexample.com', '.example.com'],
      ['192.0.2.7', '0.2.7'],
      ['192.0.3.7', '192.0.2.0/24'],
      ['192.0.2.7', '192.0.2.0/33'],
      ['192.0.2.7', '2001:db8::/32'],
      ['api.example.com', '.'],
      ['api.example.com', 'api.example.com:8443'],
      ['api.example.com', ''],
    ]
    expect(passed.filter(([host, entry]) => !isPassed(host, entry))).toEqual([])
    expect(asked.filter(([host, entry]) => isPassed(host, entry))).toEqual([])
    expect(ofEnv({ HTTPS_PROXY: 'p:1', NO_PROXY: 'x', no_proxy: 'api.example.com' })).toBeNull()
  })

  test('is not asked about a service on loopback, not even where it is none', () => {
    const loopback = new URL('http://127.0.0.1:8080')
    expect(proxyOf(loopback, { proxy: null, env: { https_proxy: 'socks5://proxy' } })).toBeNull()
  })

  test('that is no HTTP proxy is a fault of the configuration', () => {
    const unfit = ['socks5://proxy:1080', 'nohttp://proxy', 'http:///', 'http://user:pass@', 'http://x:y']
    const message = expect.stringMatching(/^(?!.*pass)HTTPS_PROXY .*http:\/\/proxy\.example\.com/) as string
    const fault = expect.objectContaining({ status: exitStatus.configuration, message }) as Error
    for (const HTTPS_PROXY of unfit) {
      expect(() => ofEnv({ HTTPS_PROXY }), HTTPS_PROXY).toThrow(fault)
    }
  })
})

test('the proxy of request.proxy comes before that of the environment, and false is none', () => {
  const env = { HTTPS_PROXY: 'http://of-env:1', NO_PROXY: '*' }
  expect(proxyOf(service, { proxy: false, env })).toBeNull()
  const own = { url: 'http://own:3128', user: 'ada', password: new Secret('p:%4') }
  const used = { host: 'own:3128', login: basic('ada:p:%4'), setting: 'request.proxy' }
  expect(proxyOf(service, { proxy: own, env })).toMatchObject(used)
})
