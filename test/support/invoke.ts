// A command in this process, as `main.ts` calls it.
import { Readable } from 'node:stream'
import type { Invocation, RunCommand } from '../../src/terminal/command.ts'
import { createMemoryStream } from './memory-stream.ts'

/** Gives its output so far, and its exit status once it ends. `stop` aborts it. */
export function invoke(run: RunCommand, options: Invocation['options']) {
  const stdout = createMemoryStream()
  const stop = new AbortController()
  const status = run({
    options,
    positionals: [],
    env: {},
    stdin: Readable.from([]),
    stdout,
    stderr: createMemoryStream(),
    signal: stop.signal,
  })
  return { status, output: () => stdout.lines().join('\n'), stop: () => stop.abort() }
}
