// A person at a terminal: questions, whose answers may be hidden while they are typed, and signs that work goes on.
import { createInterface } from 'node:readline/promises'
import type { Readable, Writable } from 'node:stream'
import { Writable as WritableStream } from 'node:stream'

import { UsageError } from '../lib/error.ts'

export type Prompt = ReturnType<typeof createPrompt>

export function isTerminal(stream: Readable | Writable): boolean {
  return 'isTTY' in stream && stream.isTTY === true
}

/** Questions go to `output`, a terminal like `input`. */
export function createPrompt(options: { input: Readable; output: Writable; signal: AbortSignal }) {
  const { input, output, signal } = options
  let isHidden = false
  // readline shows what is typed by writing it here.
  const screen = new WritableStream({
    write(chunk: Buffer, _encoding, done) {
      if (!isHidden) output.write(chunk)
      done()
    },
  })
  const lines = createInterface({ input, output: screen, terminal: true })
  const ended = new AbortController()
  lines.once('close', () => ended.abort())
  // In raw mode the terminal sends no signal for Ctrl-C.
  lines.once('SIGINT', () => process.kill(process.pid, 'SIGINT'))

  async function read(question: string, hides: boolean): Promise<string> {
    if (hides) output.write(question)
    isHidden = hides
    try {
      return await lines.question(hides ? '' : question, { signal: AbortSignal.any([signal, ended.signal]) })
    } catch (error) {
      signal.throwIfAborted()
      if (!ended.signal.aborted) throw error
      throw new UsageError('Nothing was entered, and nothing was written.', { cause: error })
    } finally {
      isHidden = false
      if (hides) output.write('\n')
    }
  }

  return {
    /** Asks again until the answer has no problem. Throws the signal's reason when it is aborted. */
    async ask(
      question: string,
      {
        isHidden: hides = false,
        problem,
      }: { isHidden?: boolean; problem: (answer: string) => string | undefined },
    ): Promise<string> {
      for (;;) {
        const answer = (await read(`${question}: `, hides)).trim()
        const found = problem(answer)
        if (found === undefined) return answer
        output.write(`  ${found}\n`)
      }
    },
    close: () => lines.close(),
  }
}

/** Says at a terminal that work goes on. */
export function announce(stderr: Writable, sentence: string): void {
  if (isTerminal(stderr)) stderr.write(`${sentence} …\n`)
}
