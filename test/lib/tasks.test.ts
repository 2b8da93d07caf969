import { getEventListeners } from 'node:events'
import { expect, it } from 'vitest'
import { raceAbort } from '../../src/lib/tasks.ts'

it('a race with a signal leaves no listener at it, however it ends', async () => {
  const { signal } = new AbortController()
  await raceAbort(Promise.resolve(), signal)
  await expect(raceAbort(Promise.reject(new Error('lost')), signal)).rejects.toThrow('lost')
  expect(getEventListeners(signal, 'abort')).toEqual([])
})
