// Reads the JSON reports of vitest: `failed FILE` prints the test files with a failure, `sum FILE…` the closing lines of
// a run. It ends with 1 where more tests passed only when run again than a sound run has.
import { existsSync, readFileSync } from 'node:fs'

const [command, ...reports] = process.argv.slice(2)
/** Files of tests. */
const MOST_AGAIN = 2
const print = (line) => process.stdout.write(`${line}\n`)

/** One entry for each test, and one for a file that failed without a failed test: it could not be loaded or set up. */
function read(report) {
  return JSON.parse(readFileSync(report, 'utf8')).testResults.flatMap(
    ({ name, status, message, assertionResults }) => {
      // Relative, as the same file may run in several copies of the checkout.
      const file = name.slice(name.lastIndexOf('/test/') + 1)
      const tests = assertionResults.map((test) => ({
        file,
        name: test.fullName,
        status: test.status,
        why: test.failureMessages[0],
      }))
      const isUnexplained = status === 'failed' && tests.every((test) => test.status !== 'failed')
      return isUnexplained ? [...tests, { file, name: message, status }] : tests
    },
  )
}

/** The tests that passed only when their file ran again. */
const passedAgain = []

/** A file that ran again counts as it ended then. */
function final(report) {
  const again = report.replace('.json', '.again.json')
  if (!existsSync(report) && !existsSync(again))
    return [{ file: report, name: 'no results', status: 'failed' }]
  const first = existsSync(report) ? read(report) : []
  const second = existsSync(again) ? read(again) : []
  const repeated = new Set(second.map(({ file }) => file))
  const failedFirst = new Set(
    first.filter(({ status }) => status === 'failed').map(({ file, name }) => `${file}: ${name}`),
  )
  for (const { file, name, status } of second)
    if (status === 'passed' && failedFirst.has(`${file}: ${name}`)) passedAgain.push({ file, name })
  return [...first.filter(({ file }) => !repeated.has(file)), ...second]
}

if (command === 'failed') {
  const tests = existsSync(reports[0]) ? read(reports[0]) : []
  for (const file of new Set(tests.filter(({ status }) => status === 'failed').map((test) => test.file)))
    print(file)
} else {
  const tests = reports.flatMap(final)
  const passed = tests.filter(({ status }) => status === 'passed').length
  const failed = tests.filter(({ status }) => status === 'failed')
  // An ordinary user's run skips what only root can do; another run has it.
  const hasPassed = new Set(
    tests.filter(({ status }) => status === 'passed').map(({ file, name }) => `${file}: ${name}`),
  )
  const skipped = tests.filter(
    ({ file, name, status }) =>
      status !== 'passed' && status !== 'failed' && !hasPassed.has(`${file}: ${name}`),
  )
  for (const { file, name, why } of failed) print(`failed: ${file}: ${name}${why ? `\n  ${why}` : ''}`)
  for (const { file, name } of skipped) print(`skipped: ${file}: ${name}`)
  for (const { file, name } of passedAgain) print(`passed only when run again: ${file}: ${name}`)
  const files = new Set(passedAgain.map(({ file }) => file)).size
  print(
    `passed only when run again: ${passedAgain.length} in ${files} files (more than ${MOST_AGAIN} files fail the run)`,
  )
  if (files > MOST_AGAIN) process.exitCode = 1
  print(`${passed} passed, ${failed.length} failed, ${skipped.length} skipped`)
}
