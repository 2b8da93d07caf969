// node load.mjs ipc|http|push SOCKET PID CONNECTIONS AMOUNT
//
// ipc, http: each connection asks again as soon as it is answered, for AMOUNT seconds. push: each connection
// subscribes ten times; then AMOUNT refreshes, each of which all wait for. Prints one line of JSON: CPU time is
// that of all threads of process PID, as the scheduler counts it; p99 is of the waits for answers; both in ns.
import { readdirSync, readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

const [kind, path, pid, connections, amount] = process.argv.slice(2)
const nowNs = () => performance.now() * 1e6
const cpuNs = () =>
  readdirSync(`/proc/${pid}/task`).reduce((sum, task) => {
    const [ran] = readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')
    return sum + Number(ran)
  }, 0)

/** Opens so many connections, whose input is heard. */
function open(count, onText) {
  const one = () =>
    new Promise((resolve, reject) => {
      const socket = connect(path, () => resolve(socket))
        .on('error', reject)
        .setEncoding('latin1')
      socket.on('data', (text) => onText(text, socket))
    })
  return Promise.all(Array.from({ length: Number(count) }, one))
}

/** Measures what the work costs, which gives the number of answers. */
async function measured(work, waits = []) {
  const [from, cpu] = [nowNs(), cpuNs()]
  const count = await work()
  const p99Ns = waits.toSorted((one, other) => one - other)[Math.floor(waits.length * 0.99)] ?? 0
  const spent = { count, seconds: (nowNs() - from) / 1e9, cpuNs: cpuNs() - cpu, p99Ns }
  process.stdout.write(`${JSON.stringify(spent)}\n`)
}

async function request() {
  const waits = []
  const asked = new Map()
  /** Those that have had no answer yet: Node accepts one connection in a turn. */
  const waiting = new Set()
  let [id, begin] = [0, () => undefined]
  const ask = (socket) => {
    asked.set(socket, nowNs())
    if (kind === 'http') socket.write('GET /v1/token HTTP/1.1\r\nHost: localhost\r\n\r\n')
    else socket.write(`{"type":"token.get","data":{"id":"${(id += 1)}"}}\f`)
  }
  const sockets = await open(connections, (text, socket) => {
    if (!text.endsWith(kind === 'http' ? '}' : '\f')) return
    waits.push(nowNs() - asked.get(socket))
    if (waiting.delete(socket) && waiting.size === 0) begin()
    ask(socket)
  })
  const isServed = new Promise((resolve) => (begin = resolve))
  for (const socket of sockets) waiting.add(socket)
  for (const socket of sockets) ask(socket)
  await isServed
  await sleep(300)
  waits.length = 0
  await measured(async () => (await sleep(amount * 1_000), waits.length), waits)
}

async function push() {
  let [missing, done] = [0, () => undefined]
  const arrived = (count) => new Promise((resolve) => ([missing, done] = [missing + count, resolve]))
  const onText = (text) => {
    missing -= text.split('\f').length - 1
    if (missing === 0) done()
  }
  const subscriptions = connections * 10
  const subscribe = Array.from(
    { length: 10 },
    (_, id) => `{"type":"token.subscribe","data":{"id":"${id}"}}\f`,
  )
  for (const socket of await open(connections, onText)) socket.write(subscribe.join(''))
  await arrived(subscriptions)
  const [asker] = await open(1, onText)
  await measured(async () => {
    for (let refreshes = 0; refreshes < amount; refreshes += 1) {
      asker.write('{"type":"refresh.request","data":{"id":"r"}}\f')
      await arrived(subscriptions + 1)
    }
    return Number(amount)
  })
}

await (kind === 'push' ? push() : request())
process.exit()
