// Clients that send the same request as fast as they can. Prints a line when all are connected.
//
// node flood.mjs '{"path": …, "connections": 256, "first": "", "request": …, "burst": 400, "uid": 1000}'
//
// Of several requests (a list) each connection sends one, `bytes` of it at a time. `first` is sent once, then
// `burst` requests at a time, as often as they are taken, or `times` times. Answers are read and thrown away,
// unless `reads` is false. With `again` a lost connection is made again. `together`: nothing is sent before
// all are connected.
import { connect } from 'node:net'

const settings = JSON.parse(process.argv[2] ?? '{}')
const {
  path,
  connections = 1,
  first = '',
  request,
  burst = 1,
  bytes = 0,
  uid,
  times = Infinity,
  reads = true,
  again = false,
  together = false,
} = settings
const chunks = [request]
  .flat()
  .map((each) => Buffer.from(each.repeat(bytes > 0 ? Math.ceil(bytes / each.length) : burst), 'latin1'))
let connected = 0
const waiting = []

if (uid !== undefined) {
  process.setgroups([])
  process.setgid(uid)
  process.setuid(uid)
}
for (let index = 0; index < connections; index += 1) open(chunks[index % chunks.length])

function open(chunk) {
  const socket = connect(path)
  let left = times
  const send = () => {
    while (left > 0 && !socket.destroyed) {
      left -= 1
      if (!socket.write(chunk)) return
      if (times === Infinity) return
    }
  }
  socket.on('connect', () => {
    connected += 1
    waiting.push(() => {
      socket.write(first)
      send()
    })
    if (connected === connections) process.stdout.write('flooding\n')
    if (!together || connected >= connections) for (const begin of waiting.splice(0)) begin()
  })
  // While it is not read from, there is no end either.
  if (reads)
    socket.on('data', () => {
      if (times === Infinity && socket.writableLength === 0) send()
    })
  socket.on('drain', send)
  socket.on('error', () => undefined)
  if (again) socket.on('close', () => setImmediate(open, chunk))
}
