// Checks the English of comments, names, messages and manual.
import { expect, test } from 'vitest'
import { CHECKED, findingsIn, textFiles } from './support/english.ts'

test('no comment begins with a relative clause, and no word of the list is used', () => {
  const files = textFiles(CHECKED)
  expect(files.length).toBeGreaterThan(300)
  const findings = files.flatMap(findingsIn)
  expect(findings.map(({ path, line, problem }) => `${path}:${line}: ${problem}`)).toEqual([])
})
