// Clients that ask one after the other until stdin ends: node asking.mjs IPC HTTP CLIENTS [PAUSE [WAIT]]
//
// Half of the clients of each socket keep their connection, the others make one for each request. A request
// that was cut off before the first byte of its answer is repeated, once, as the manual says. PAUSE is in ms,
// between two requests of a client. WAIT is in s: where there is no token, an answer waits for it. Prints
// the numbers of answers, repetitions and losses.
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

const [ipc, http, clients, pause, wait = '0'] = process.argv.slice(2)
const counts = { answered: 0, repeated: 0, lost: 0 }
const end = { isReached: false }
let id = 0

const PROTOCOLS = [
  {
    path: ipc,
    request: () => `{"type":"token.get","data":{"id":"${(id += 1)}","waitSeconds":${wait}}}\f`,
    pattern: /"token\.result".*\f$/s,
  },
  {
    path: http,
    request: () => `GET /v1/token?waitSeconds=${wait} HTTP/1.1\r\nHost: x\r\n\r\n`,
    pattern: /^HTTP\/1\.1 200 .*\}$/s,
  },
]

/** Resolves with `answered`; if the connection ended: `unanswered`, or within an answer `broken`. */
function ask(socket, { request, pattern }) {
  return new Promise((resolve) => {
    let text = ''
    const done = (outcome) => {
      socket.off('data', onData).off('close', onClose)
      resolve(outcome)
    }
    const onData = (chunk) => {
      text += chunk
      if (pattern.test(text)) done('answered')
    }
    const onClose = () => done(text === '' ? 'unanswered' : 'broken')
    socket.on('data', onData).on('close', onClose)
    if (socket.destroyed) onClose()
    else socket.write(request())
  })
}

function open({ path }) {
  const socket = connect(path).setEncoding('latin1')
  return socket.on('error', () => undefined)
}

async function run(protocol, keeps) {
  let socket = null
  while (!end.isReached) {
    let outcome = 'unanswered'
    for (let tries = 0; tries < 2 && outcome === 'unanswered'; tries += 1) {
      const isReused = socket !== null && !socket.destroyed
      if (!isReused) socket = open(protocol)
      outcome = await ask(socket, protocol)
      if (outcome !== 'unanswered') break
      // A connection of its own for each request has to be answered at the first try.
      if (!isReused) break
      counts.repeated += 1
    }
    counts[outcome === 'answered' ? 'answered' : 'lost'] += 1
    if (!keeps) socket.destroy()
    if (pause !== undefined) await sleep(Number(pause))
  }
  socket?.destroy()
}

const running = []
for (let index = 0; index < Number(clients); index += 1)
  for (const protocol of PROTOCOLS) running.push(run(protocol, index % 2 === 0))
process.stdout.write('asking\n')
process.stdin.resume().on('end', () => {
  end.isReached = true
})
await Promise.all(running)
process.stdout.write(`${JSON.stringify(counts)}\n`)
