// The word for this program in commands that are printed: one that works where they are pasted.
import { realpathSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { shellWord } from '../lib/display-text.ts'
import { withSystemFallback } from '../lib/error.ts'

/** Where the package has the program, which its /usr/bin/kyc-tokend starts. */
const PACKAGE = '/usr/lib/kyc-tokend'
let word = 'kyc-tokend'

/** The word for this program in commands that are printed. */
export function programName(): string {
  return word
}

/**
 * Called once, where the program starts: if a shell finds it by no name, or another one by that, its name is
 * its file after that of its Node.
 */
export function decideProgramName({ PATH = '' }: NodeJS.ProcessEnv): void {
  const program = thisProgram()
  const file = program.at(-1)!
  // npx alone finds what is in the latter.
  const directories = PATH.split(':').filter((path) => !path.endsWith('/node_modules/.bin'))
  const isFound = (): boolean => directories.some((path) => realFile(join(path, word)) === file)
  if (dirname(file) === PACKAGE || isFound()) return
  word = program.map(shellWord).join(' ')
}

/** The program of this process, as words that work in each directory and with each PATH. */
export function thisProgram(): string[] {
  return [process.execPath, ...process.execArgv, realFile(process.argv[1] ?? '')]
}

function realFile(path: string): string {
  return withSystemFallback(path, () => realpathSync(path))
}
