import { expect, test } from 'vitest'
import { closingAnswer } from '../../src/delivery/http/responses.ts'

test.each([
  ['too-many-connections', 'HTTP/1.1 503 Service Unavailable'],
  ['broken-framing', 'HTTP/1.1 400 Bad Request'],
] as const)('the answer before a connection is closed for %s is whole', (reason, line) => {
  const [head = '', body = ''] = closingAnswer(reason)?.split('\r\n\r\n') ?? []
  const [first, ...headers] = head.split('\r\n')
  expect(first).toBe(line)
  for (const header of headers) expect(header).toMatch(/^[A-Za-z-]+: \S[^:]*$/)
  expect(headers).toContain(`Content-Length: ${Buffer.byteLength(body)}`)
  expect(headers).toContain('Connection: close')
  expect(JSON.parse(body)).toMatchObject({ status: Number(line.split(' ')[1]) })
})
