// A person at a terminal: questions, whose answers may be hidden while they are typed, and signs that work goes on.
import { createInterface } from 'node:readline/promises'
import { Writable, type Readable } from 'node:stream'

import { UsageError } from '../lib/error.ts'

export function isTerminal(stream: Readable | Writable): boolean {
  return 'isTTY' in stream && stream.isTTY === true
}

/** Says at a terminal that work goes on. */
export function announce(stderr: Writable, sentence: string): void {
  if (isTerminal(stderr)) stderr.write(`${sentence} …\n`)
}

/** Questions go to `output`, a terminal like `input`. */
export function createPrompt(options: { input: Readable; output: Writable; signal: AbortSignal }) {
  const { input, output, signal } = options
  let isHiding = false
  // readline shows what is typed by writing it here.
  const screen = new Writable({
    write(chunk: Buffer, _encoding, done) {
      if (!isHiding) output.write(chunk)
      done()
    },
  })
  const lines = createInterface({ input, output: screen, terminal: true })
  const ended = new AbortController()
  lines.once('close', () => ended.abort())
  // In raw mode the terminal sends no signal for Ctrl-C.
  lines.once('SIGINT', () => process.kill(process.pid, 'SIGINT'))

  async function read(question: string): Promise<string> {
    if (isHiding) output.write(question)
    try {
      const answer = await lines.question(isHiding ? '' : question, {
        signal: AbortSignal.any([signal, ended.signal]),
      })
      return answer.trim()
    } catch (error) {
      signal.throwIfAborted()
      if (!ended.signal.aborted) throw error
      throw new UsageError('Nothing was entered, and nothing was written.', { cause: error })
    } finally {
      if (isHiding) output.write('\n')
    }
  }

  return {
    /** Asks again until the answer has no problem. Throws the signal's reason when it is aborted. */
    async ask(
      question: string,
      { isHidden, problem }: { isHidden: boolean; problem: (answer: string) => string | undefined },
    ): Promise<string> {
      isHiding = isHidden
      for (;;) {
        const answer = await read(`${question}: `)
        const found = problem(answer)
        if (found === undefined) return answer
        output.write(`  ${found}\n`)
      }
    },
    [Symbol.dispose]: () => lines.close(),
  }
}
