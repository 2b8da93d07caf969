import { getEventListeners } from 'node:events'
import { setImmediate } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { raceAbort, runTasks, untilAborted } from '../../src/lib/tasks.ts'

it('a race with a signal leaves no listener at it, however it ends', async () => {
  const { signal } = new AbortController()
  await raceAbort(Promise.resolve(), signal)
  await expect(raceAbort(Promise.reject(new Error('lost')), signal)).rejects.toThrow('lost')
  expect(getEventListeners(signal, 'abort')).toEqual([])
})

it('tasks end together, with the first error once all have ended', async () => {
  const ended: string[] = []
  const task = (name: string, end: (signal: AbortSignal) => Promise<void>) => ({
    run: async (signal: AbortSignal) => end(signal).finally(() => ended.push(name)),
  })
  const failing = (name: string) => task(name, async () => Promise.reject(new Error(name)))
  const waiting = task('waiting', async (signal) => untilAborted(signal).then(() => setImmediate()))
  const never = new AbortController().signal
  await expect(runTasks([waiting, failing('first'), failing('second')], never)).rejects.toThrow('first')
  expect(ended).toEqual(['first', 'second', 'waiting'])
  await runTasks([waiting, task('good', async () => Promise.resolve())], never)
  await runTasks([waiting], AbortSignal.abort())
  expect(ended.slice(3)).toEqual(['good', 'waiting', 'waiting'])
})
