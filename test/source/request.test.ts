import { expect, test } from 'vitest'
import { standardService } from '../../src/config/service.ts'
import { Secret } from '../../src/lib/secret.ts'
import { version } from '../../src/lib/version.ts'
import { serviceRequest } from '../../src/source/request.ts'

const credentials = { apiKey: new Secret('key'), apiSecret: new Secret('geheim-ß') }

test('a request is that of the interface description, byte for byte', () => {
  const { url, headers, body } = serviceRequest(standardService('https://api.example.com'), credentials)
  expect(url.href).toBe('https://api.example.com/token/external/jwt')
  expect(body.toString('utf8')).toBe('{"apiKey":"key","apiSecret":"geheim-ß"}')
  expect(Object.entries(headers)).toEqual([
    ['accept', 'application/json'],
    ['accept-encoding', 'identity'],
    ['content-type', 'application/json'],
    ['content-length', '40'],
    ['user-agent', `kyc-tokend/${version}`],
  ])
})
