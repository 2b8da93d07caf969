// watch: one line of JSON now and at each change, until the reader goes away.
import { fstatSync } from 'node:fs'
import type { Writable } from 'node:stream'
import type { TokenClientError } from '../client/index.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { errorMessage } from '../lib/error.ts'
import { openClient, withReason } from '../terminal/ask.ts'
import type { RunCommand } from '../terminal/command.ts'

/** Interval of the check for a reader of the output: a pipe sends no event. */
const POLL_MS = 1_000

export const watch: RunCommand = async (invocation) => {
  const { stdout, stderr } = invocation
  const hidesToken = invocation.options['no-token'] === true
  using client = openClient(invocation)
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  let hasAnswered = false
  const print = (line: object): void => {
    hasAnswered = true
    stdout.write(`${escapeUnsafe(JSON.stringify(line))}\n`)
  }
  const { link } = client
  // JSON.stringify leaves out what is undefined.
  client.subscribe((token) => print(hidesToken ? { ...token, accessToken: undefined } : token))
  let reported: TokenClientError | undefined
  link.onChange(() => {
    const { fault, isLive } = link.view()
    if (fault?.code === 'closed' || fault?.message === reported?.message) return
    reported = fault
    if (fault === undefined) return
    const { code, message, reason } = fault
    if (isLive) print({ code, message, reason })
    else
      void withReason(fault, invocation).then((error) =>
        hasAnswered ? stderr.write(`${escapeUnsafe(errorMessage(error))}\n`) : reject(error),
      )
  })
  // cli.ts reports the error; a reader that has closed the pipe is none.
  stdout.once('error', () => resolve())
  whenReaderIsGone(stdout, resolve).catch(reject)
  await promise
  return 0
}

async function whenReaderIsGone(stdout: Writable, resolve: () => void): Promise<void> {
  const { fd } = stdout as Writable & { fd?: number }
  if (fd === undefined || !fstatSync(fd).isFIFO()) return
  const { loadLibc } = await import('../lib/libc.ts')
  const libc = loadLibc()
  setInterval(() => !libc.hasReader(fd) && resolve(), POLL_MS).unref()
}
