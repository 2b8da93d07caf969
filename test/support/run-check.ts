// A process that runs `check` on the configuration that is named.
import { run } from '../../src/commands/check.ts'

const [config] = process.argv.slice(2)
const { env, stdin, stdout, stderr } = process
const signal = new AbortController().signal
process.exitCode = await run({ options: { config }, positionals: [], env, stdin, stdout, stderr, signal })
