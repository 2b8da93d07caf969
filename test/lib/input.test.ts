import { Readable } from 'node:stream'
import { expect, test } from 'vitest'
import { readLimited } from '../../src/lib/input.ts'

const streamOf = (...chunks: string[]): Readable => Readable.from(chunks.map((chunk) => Buffer.from(chunk)))

test('a stream that fits is read whole', async () => {
  expect((await readLimited(streamOf('abc', 'de'), { maxBytes: 5 }))?.toString()).toBe('abcde')
  expect((await readLimited(streamOf(), { maxBytes: 0 }))?.length).toBe(0)
})

test('one that does not fit is left, and destroyed', async () => {
  const stream = streamOf('abc', 'def', 'ghi', 'jkl')
  expect(await readLimited(stream, { maxBytes: 5 })).toBeUndefined()
  expect(stream.destroyed).toBe(true)
})

test('a stream that fails is an error', async () => {
  const failing = new Readable({ read: () => failing.destroy(new Error('broken')) })
  await expect(readLimited(failing as AsyncIterable<Buffer>, { maxBytes: 5 })).rejects.toThrow('broken')
})
