// The least in Node that gives the answers of `ipc.sock`: frames split, JSON parsed, the request's own id in each answer, one write
// for each chunk, and for a new token one for each connection. node bare-ipc.mjs SOCKET TOKEN
import { createServer } from 'node:net'

const [path, accessToken] = process.argv.slice(2)
const fields = {
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
}
const rest = `${JSON.stringify(fields).slice(1)}}\f`
const answer = (type, id) => `{"type":"${type}","data":{"id":${JSON.stringify(id)},${rest}`
const subscribers = new Map()

function refresh() {
  for (const [socket, ids] of subscribers) {
    let out = ''
    for (const id of ids) out += answer('token.changed', id)
    socket.write(out)
  }
}

createServer((socket) => {
  let kept = ''
  socket.setEncoding('utf8').on('data', (text) => {
    const input = kept + text
    let from = 0
    let out = ''
    for (let at = input.indexOf('\f'); at !== -1; at = input.indexOf('\f', from)) {
      const { type, data } = JSON.parse(input.slice(from, at))
      out += answer('token.result', data.id)
      if (type === 'token.subscribe') subscribers.set(socket, [...(subscribers.get(socket) ?? []), data.id])
      else if (type === 'refresh.request') refresh()
      from = at + 1
    }
    kept = input.slice(from)
    if (out !== '') socket.write(out)
  })
  socket.on('error', () => undefined).on('close', () => subscribers.delete(socket))
}).listen({ path, backlog: 4096 })
process.on('SIGTERM', () => process.exit())
