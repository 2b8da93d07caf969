import { expect, test } from 'vitest'
import { runProgram } from '../../src/lib/run-program.ts'

test.each([
  ['fails', 'sh', ['-c', 'echo out; echo why >&2; exit 3'], 'out\n', /^why\n$/],
  ['takes too long and prints nothing', 'sleep', ['9'], '', /sleep 9/],
  ['does not exist', 'no-such-program', [], '', /ENOENT/],
])('a program that %s has failed for a reason', async (_, program, words, stdout, reason) => {
  const stderr = expect.stringMatching(reason) as string
  const timeoutMs = program === 'sleep' ? 50 : 20_000
  expect(await runProgram(program, words, timeoutMs)).toEqual({ isOk: false, stdout, stderr })
})

test('a program that succeeds has no reason', async () => {
  expect(await runProgram('echo', ['out'], 20_000)).toEqual({ isOk: true, stdout: 'out\n', stderr: '' })
})
