// The least a server in Node can do on `http.sock`: node:http, and an answer that is ready.
import { createServer } from 'node:http'

const [path, token] = process.argv.slice(2)
const answer = Buffer.from(
  JSON.stringify({
    accessToken: token,
    tokenType: 'Bearer',
    obtainedAt: '2026-01-01T00:00:00.000Z',
    expiresAt: '2026-01-02T00:00:00.000Z',
    expirySource: 'jwt',
    baseUrl: 'http://127.0.0.1:12345',
    refreshAt: '2026-01-01T16:00:00.000Z',
    generation: 1,
    fingerprint: '0123456789abcdef',
    state: 'ready',
    stale: false,
  }),
)
const head = [
  'Content-Type',
  'application/json',
  'Content-Length',
  String(answer.length),
  'Cache-Control',
  'no-store',
]

const server = createServer((_request, response) => {
  response.writeHead(200, head)
  response.end(answer)
})
server.listen(path)
process.on('SIGTERM', () => {
  server.close()
  process.exit()
})
