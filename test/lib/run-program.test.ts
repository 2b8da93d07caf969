import { expect, test } from 'vitest'
import { runProgram } from '../../src/lib/run-program.ts'

test.each([
  ['takes too long', 'sleep', ['9']],
  ['does not exist', 'no-such-program', []],
])('a program that %s and prints nothing has failed for a reason', async (_, program, words) => {
  const { isOk, stderr } = await runProgram(program, words, 50)
  expect(isOk).toBe(false)
  expect(stderr).not.toBe('')
})
