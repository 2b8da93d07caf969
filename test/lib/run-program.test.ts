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

test('what a program prints before it fails is its reason, and one that succeeds has none', async () => {
  const run = async (script: string) => runProgram('sh', ['-c', script], 20_000)
  expect(await run('echo out; echo why >&2; exit 3')).toEqual({
    isOk: false,
    stdout: 'out\n',
    stderr: 'why\n',
  })
  expect(await run('echo out')).toEqual({ isOk: true, stdout: 'out\n', stderr: '' })
})
