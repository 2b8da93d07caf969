// The option `fetch`: implementations whose answers have bodies of another kind.
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { ReadableStream } from 'node:stream/web'
import { expect, test } from 'vitest'
import { clientOf, renewingDaemon, startApi } from '../support/client-world.ts'

/** An answer as node-fetch has it: its body is a stream of Node, without `cancel`. */
function otherAnswer(answer: Response): Response {
  const body = Readable.fromWeb(answer.clone().body as ReadableStream)
  const { status, headers, url } = answer
  const others = {
    redirected: false,
    bodyUsed: false,
    text: () => text(body),
    clone: () => otherAnswer(answer),
  }
  return { status, headers, url, body, ...others } as unknown as Response
}
/** It takes request objects of its own. */
const otherFetch: typeof fetch = async (input, init) =>
  otherAnswer(await fetch(typeof input === 'object' && 'url' in input ? input.url : input, init))

test('another fetch may have bodies of another kind: a refusal, a redirect and a clone are as with ours', async () => {
  const api = await startApi((given, response) =>
    given.url === '/moved'
      ? response.writeHead(307, { location: '/a' }).end('moved')
      : response.writeHead(given.headers.authorization === 'Bearer token-2' ? 200 : 401).end('body'),
  )
  const daemon = await renewingDaemon(api.url)
  const client = clientOf(daemon, { fetch: otherFetch, isRefusal: ({ status }) => status === 401 })
  const response = await client.fetch(`${api.url}/moved`, { method: 'POST', body: 'body' })
  expect([response.status, response.redirected, await response.text()]).toEqual([200, true, 'body'])
  expect(api.seen).toHaveLength(4)
  // Its own request objects are taken, too.
  const own = { url: `${api.url}/own`, method: 'GET', headers: new Headers({ 'x-a': '1' }), body: null }
  const target = Object.assign(own, { toString: () => own.url }) as unknown as Request
  expect((await client.fetch(target)).status).toBe(200)
  expect(api.seen.at(-1)).toBe('GET /own Bearer token-2 ')
})
