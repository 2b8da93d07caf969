// The least a server in Node can do on `ipc.sock`: node:net, frames that end in a form feed, and an answer that is ready.
// With a service's URL it pushes too: on SIGUSR2 it asks that service once and writes the answer to every connection.
import { createServer } from 'node:net'

const [path, token, service] = process.argv.slice(2)
const FRAME_END = 0x0c
const frameOf = (type, accessToken) =>
  Buffer.from(
    `${JSON.stringify({ type, data: { id: '1', accessToken, tokenType: 'Bearer', obtainedAt: '2026-01-01T00:00:00.000Z', expiresAt: '2026-01-02T00:00:00.000Z', expirySource: 'jwt', baseUrl: 'http://127.0.0.1:12345', refreshAt: '2026-01-01T16:00:00.000Z', generation: 1, fingerprint: '0123456789abcdef', state: 'ready', stale: false } })}\f`,
  )
const answer = frameOf('token.result', token)
const sockets = new Set()

const server = createServer((socket) => {
  socket.on('data', (chunk) => {
    for (let at = chunk.indexOf(FRAME_END); at !== -1; at = chunk.indexOf(FRAME_END, at + 1))
      socket.write(answer)
  })
  socket.on('error', () => undefined)
  if (service === undefined) return
  sockets.add(socket)
  socket.on('close', () => sockets.delete(socket))
})
server.listen(path)

if (service !== undefined) {
  const { request } = await import('node:http')
  process.on('SIGUSR2', () => {
    request(`${service}/token/external/jwt`, { method: 'POST', agent: false }, (response) => {
      const chunks = []
      response.on('data', (chunk) => chunks.push(chunk))
      response.on('end', () => {
        const frame = frameOf('token.changed', JSON.parse(Buffer.concat(chunks)).accessToken)
        for (const socket of sockets) socket.write(frame)
      })
    }).end('{}')
  })
}
process.on('SIGTERM', () => {
  server.close()
  process.exit()
})
