// The least in Node that gives the answer of `GET /v1/token`: node:http, and a body that is ready. node bare-http.mjs SOCKET TOKEN
import { createServer } from 'node:http'

const [path, accessToken] = process.argv.slice(2)
const body = JSON.stringify({
  accessToken,
  tokenType: 'Bearer',
  header: 'Authorization',
  prefix: 'Bearer ',
  obtainedAt: '2026-01-01T00:00:00.000Z',
  expiresAt: '2026-01-02T00:00:00.000Z',
  expirySource: 'jwt',
  baseUrl: 'http://127.0.0.1:12345',
  refusedBy: [401],
  refreshAt: '2026-01-01T16:00:00.000Z',
  generation: 1,
  fingerprint: '0123456789abcdef',
  state: 'ready',
  stale: false,
})
const length = String(Buffer.byteLength(body))
const head = ['Content-Type', 'application/json', 'Content-Length', length, 'Cache-Control', 'no-store']

createServer((_request, response) => {
  response.writeHead(200, head)
  response.end(body)
}).listen({ path, backlog: 4096 })
process.on('SIGTERM', () => process.exit())
