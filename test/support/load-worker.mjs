// A program under load: `node load-worker.mjs CLIENT SOCKET URL LANES` calls a service through the client, in so many
// lanes, until it is stopped. It prints a line for each call that fails or is slow, and in the end the number of calls.
import { setTimeout as pause } from 'node:timers/promises'

const [client, socketPath, url, lanes] = process.argv.slice(2)
const { TokenClient } = await import(client)
const tokens = new TokenClient({ socketPath, name: 'load' })
const PAUSE_MS = 50
const TICK_MS = 100
/** More ticks than this are a slow call. They are counted here, so that a busy machine slows both. */
const SLOW_TICKS = 10

let ticks = 0
let calls = 0
const stop = new AbortController()
setInterval(() => (ticks += 1), TICK_MS).unref()
process.once('SIGTERM', () => stop.abort())

const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`)

async function call(lane) {
  const began = { atMs: Date.now(), ticks }
  let result
  try {
    const response = await tokens.fetch(url, { headers: { 'x-lane': `${process.pid} ${lane}` } })
    await response.text()
    result = response.status
  } catch (error) {
    result = error.code ?? String(error)
  }
  calls += 1
  const isSlow = ticks - began.ticks > SLOW_TICKS
  if (result !== 200 || isSlow) print({ fromMs: began.atMs, toMs: Date.now(), isSlow, result })
}

await Promise.all(
  Array.from({ length: Number(lanes) }, async (_, lane) => {
    while (!stop.signal.aborted) {
      await call(lane)
      await pause(PAUSE_MS)
    }
  }),
)
print({ calls })
