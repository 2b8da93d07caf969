// Questions to a person at a terminal, whose answers may be hidden.
import { createInterface } from 'node:readline/promises'
import { Writable, type Readable } from 'node:stream'
import { UsageError } from '../lib/error.ts'
import type { Invocation } from './command.ts'

export function isTerminal(stream: Readable): boolean {
  return 'isTTY' in stream && stream.isTTY === true
}

/** Questions go to stderr, a terminal like stdin. */
export function createPrompt({ stdin, stderr, signal }: Pick<Invocation, 'stdin' | 'stderr' | 'signal'>) {
  let isHiding = false
  // readline shows what is typed by writing it here.
  const screen = new Writable({
    write(chunk: Buffer, _encoding, done) {
      if (!isHiding) stderr.write(chunk)
      done()
    },
  })
  const lines = createInterface({ input: stdin, output: screen, terminal: true })
  // In raw mode the terminal sends no signal for Ctrl-C.
  lines.once('SIGINT', () => process.kill(process.pid, 'SIGINT'))

  return {
    /** Asks until the answer has no problem, which is words about it. Throws the signal's reason when it is aborted. */
    async ask(
      question: string,
      options: { isHidden: boolean; problemOf: (answer: string) => string | undefined },
    ): Promise<string> {
      isHiding = options.isHidden
      for (;;) {
        if (isHiding) stderr.write(`${question}: `)
        // Ctrl-D ends the input.
        const typed = await lines
          .question(isHiding ? '' : `${question}: `, { signal })
          .catch((cause: unknown) => {
            signal.throwIfAborted()
            throw new UsageError('Nothing was entered, and nothing was written.', { cause })
          })
        if (isHiding) stderr.write('\n')
        const answer = typed.trim()
        const problem = options.problemOf(answer)
        if (problem === undefined) return answer
        stderr.write(`  It ${problem}\n`)
      }
    },
    [Symbol.dispose]: () => lines.close(),
  }
}
