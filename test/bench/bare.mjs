// The least in Node that gives the same answers. node bare.mjs IPC HTTP BODY
//
// `ipc.sock`: frames split, JSON parsed, the request's own id in each answer, one write for each chunk, and
// for a new token one for each connection. `GET /v1/token`: node:http, and a body that is ready.
import { createServer as createHttpServer } from 'node:http'
import { createServer } from 'node:net'

const [ipc, http, body] = process.argv.slice(2)
const length = String(Buffer.byteLength(body))
const head = ['Content-Type', 'application/json', 'Content-Length', length, 'Cache-Control', 'no-store']
const rest = `${body.slice(1)}}\f`
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
}).listen({ path: ipc, backlog: 4096 })

createHttpServer((_request, response) => {
  response.writeHead(200, head)
  response.end(body)
}).listen({ path: http, backlog: 4096 })
