// watch: one line of JSON now and at each change, until the reader goes away.
import { fstatSync } from 'node:fs'
import type { Writable } from 'node:stream'
import type { TokenClientError } from '../client.ts'
import { asUserError, openClient } from './ask.ts'
import type { RunCommand } from './command.ts'

/** How often to look whether the reader of our output is still there: a pipe does not tell by itself. */
const LOOK_MS = 1_000

export const run: RunCommand = async (invocation) => {
  const { stdout, stderr } = invocation
  const client = openClient(invocation)
  try {
    await new Promise<void>((resolve, reject) => {
      let hasAnswered = false
      const print = (line: object): void => {
        hasAnswered = true
        stdout.write(`${JSON.stringify(line)}\n`)
      }
      const onFault = (fault: TokenClientError): void => {
        const { code, message, reason } = fault
        const isSaidByDaemon = fault.cause === undefined && code !== 'daemon-unreachable'
        if (isSaidByDaemon && code !== 'denied') print({ code, message, reason })
        else if (hasAnswered) stderr.write(`${message}\n`)
        else reject(asUserError(fault))
      }
      client.subscribe(print, { onFault })
      // Told already, or no error: the reader has seen enough.
      stdout.once('error', () => resolve())
      whenReaderIsGone(stdout, resolve).catch(reject)
    })
  } finally {
    client.close()
  }
  return 0
}

/** Where koffi is missing, we learn it at the next change. */
async function whenReaderIsGone(stdout: Writable, resolve: () => void): Promise<void> {
  const { fd } = stdout as Writable & { fd?: number }
  if (fd === undefined || !fstatSync(fd).isFIFO()) return
  const { loadLibc } = await import('../lib/libc.ts')
  const libc = loadLibc()
  if ('error' in libc) return
  const timer = setInterval(() => {
    if (libc.hasReader(fd)) return
    clearInterval(timer)
    resolve()
  }, LOOK_MS)
  timer.unref()
}
