// The option `fetch`: implementations whose answers have bodies of another kind.
import { once } from 'node:events'
import { Agent, request, type IncomingMessage } from 'node:http'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import { clientOf, renewingDaemon, startApi } from '../support/client-world.ts'

const isTarget = (input: string | URL | Request): input is Request =>
  typeof input === 'object' && 'url' in input
/** A fetch over node:http, as node-fetch is: its bodies are streams of Node, without `cancel`. */
async function otherFetch(input: string | URL | Request, init: RequestInit = {}): Promise<Response> {
  const target = isTarget(input) ? input.url : String(input)
  const headers = Object.fromEntries(new Headers(init.headers))
  const asked = request(target, {
    method: init.method ?? 'GET',
    headers,
    agent: new Agent({ keepAlive: true }),
  })
  asked.end(init.body as string | undefined)
  const [answer] = (await once(asked, 'response')) as [IncomingMessage]
  const body = answer.pipe(new PassThrough())
  const fields = {
    status: answer.statusCode,
    headers: new Headers(answer.headers as Record<string, string>),
    body,
    bodyUsed: false,
    redirected: false,
    url: target,
    text: () => text(body),
    clone: () => ({ ...fields, body: answer.pipe(new PassThrough()) }),
  }
  return fields as unknown as Response
}

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
