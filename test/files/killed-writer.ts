// Replaces a file, writes the name of each call to stdout, and kills itself before the call of this number.
import { writeSync } from 'node:fs'
import { replaceFile } from '../../src/files/replace-file.ts'
import { watchFileCalls } from '../support/file-calls.ts'

const [path = '', content = '', lastCall = ''] = process.argv.slice(2)
let calls = 0
/** A call was made when the next one begins: only then it counts. */
let before = ''
watchFileCalls((name) => {
  if (before !== '') writeSync(1, `${before} `)
  if (calls === Number(lastCall)) process.kill(process.pid, 'SIGKILL')
  calls += 1
  before = name
})
await replaceFile(path, { text: content, attributes: { mode: 0o640 } })
