// Questions to a person at a terminal, whose answers may be hidden while they are typed, and notices that work goes on.
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
  // In raw mode the terminal sends no signal for Ctrl-C.
  lines.once('SIGINT', () => process.kill(process.pid, 'SIGINT'))

  return {
    /** Asks again until the answer has no problem. Throws the signal's reason when it is aborted. */
    async ask(
      question: string,
      { isHidden, problem }: { isHidden: boolean; problem: (answer: string) => string | undefined },
    ): Promise<string> {
      isHiding = isHidden
      for (;;) {
        if (isHidden) output.write(`${question}: `)
        // Ctrl-D ends the input.
        const typed = await lines
          .question(isHidden ? '' : `${question}: `, { signal })
          .catch((cause: unknown) => {
            signal.throwIfAborted()
            throw new UsageError('Nothing was entered, and nothing was written.', { cause })
          })
        if (isHidden) output.write('\n')
        const found = problem(typed.trim())
        if (found === undefined) return typed.trim()
        output.write(`  ${found}\n`)
      }
    },
    [Symbol.dispose]: () => lines.close(),
  }
}
