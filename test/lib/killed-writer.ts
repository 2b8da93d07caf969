// Replaces a file step by step, with each step written to stdout, and kills itself after the given number of steps.
import { writeSync } from 'node:fs'
import { replacing } from '../../src/lib/atomic-file.ts'
import { performNow, type FileSteps } from '../../src/lib/file-calls.ts'

const [path = '', content = '', lastStep = ''] = process.argv.slice(2)

function* dying<T>(steps: FileSteps<T>): FileSteps<T> {
  let done = 0
  let step = steps.next()
  while (!step.done) {
    if (done === Number(lastStep)) process.kill(process.pid, 'SIGKILL')
    writeSync(1, `${step.value.name} `)
    const result: unknown = yield step.value
    done += 1
    step = steps.next(result)
  }
  return step.value
}

performNow(dying(replacing(path, content, { mode: 0o640 })))
