// Questions to a person at a terminal, whose answers may be hidden, and notices that work goes on.
import { createInterface } from 'node:readline/promises'
import { Writable, type Readable } from 'node:stream'
import { UsageError } from '../lib/error.ts'
import type { Invocation } from './command.ts'

export function isTerminal(stream: Readable | Writable): boolean {
  return 'isTTY' in stream && stream.isTTY === true
}

/** Says at a terminal that work goes on. */
export function announce(stderr: Writable, sentence: string): void {
  if (isTerminal(stderr)) stderr.write(`${sentence} …\n`)
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
    /** Asks until the answer has no problem. Throws the signal's reason when it is aborted. */
    async ask(
      question: string,
      options: { isHidden: boolean; problem: (answer: string) => string | undefined },
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
        const problem = options.problem(answer)
        if (problem === undefined) return answer
        stderr.write(`  ${problem}\n`)
      }
    },
    [Symbol.dispose]: () => lines.close(),
  }
}
