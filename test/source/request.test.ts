import { expect, test } from 'vitest'
import { Secret } from '../../src/lib/secret.ts'
import { serviceRequest } from '../../src/source/request.ts'

const credentials = { apiKey: new Secret('key'), apiSecret: new Secret('geheim-ß') }

test('a request is that of the interface description', () => {
  const { url, headers, body } = serviceRequest('https://api.example.com', credentials)
  expect(url.href).toBe('https://api.example.com/token/external/jwt')
  expect(JSON.parse(body.toString('utf8'))).toEqual({ apiKey: 'key', apiSecret: 'geheim-ß' })
  expect(headers).toEqual({
    accept: 'application/json',
    'accept-encoding': 'identity',
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength('{"apiKey":"key","apiSecret":"geheim-ß"}')),
    'user-agent': expect.stringMatching(/^kyc-tokend\/\d+\.\d+\.\d+/),
  })
})

test.each([
  ['https://api.example.com/', '/token/external/jwt'],
  ['https://api.example.com/kyc/v2', '/kyc/v2/token/external/jwt'],
  ['https://api.example.com/kyc//v2///', '/kyc//v2/token/external/jwt'],
])('the path of %s is kept', (baseUrl, path) => {
  expect(serviceRequest(baseUrl, credentials).url.pathname).toBe(path)
})
