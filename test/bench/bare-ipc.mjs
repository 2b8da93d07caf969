// The least a server in Node can do on `ipc.sock`: node:net, frames that end in a form feed, an answer that is ready but for its id.
import { createServer } from 'node:net'

const [path, accessToken] = process.argv.slice(2)
const FRAME_END = 0x0c
const fields = {
  accessToken,
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
}
const rest = JSON.stringify(fields).slice(1)

const server = createServer((socket) => {
  socket.on('data', (chunk) => {
    let from = 0
    for (let at = chunk.indexOf(FRAME_END); at !== -1; at = chunk.indexOf(FRAME_END, from)) {
      const { data } = JSON.parse(chunk.toString('utf8', from, at))
      socket.write(`{"type":"token.result","data":{"id":${JSON.stringify(data.id)},${rest}}\f`)
      from = at + 1
    }
  })
  socket.on('error', () => undefined)
})
server.listen(path)
process.on('SIGTERM', () => {
  server.close()
  process.exit()
})
