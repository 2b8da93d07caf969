// The plain `token.get` is recognised by its text, and by its bytes where it comes again.
import { assert, constantFrom, integer, property, tuple, uint8Array } from 'fast-check'
import { expect, test } from 'vitest'
import { latin1Text, plainTokenGetId, repeatedTokenGetId } from '../../src/delivery/ipc/plain-token-get.ts'

const shared = Buffer.alloc(16 * 1024)
const frameOf = (id: string): string => `{"type":"token.get","data":{"id":"${id}"}}\f`

/** Has the request arrive: in the shared buffer, over what was there before. */
function arrive(bytes: Uint8Array): { repeated: string | null; read: string | null } {
  shared.set(bytes)
  return {
    repeated: repeatedTokenGetId(shared, bytes.length),
    read: plainTokenGetId(latin1Text(shared, 0, bytes.length)),
  }
}
const arriveText = (text: string): ReturnType<typeof arrive> => arrive(Buffer.from(text, 'latin1'))

test('a request is recognised by its bytes when it came twice before', () => {
  for (const id of ['1', 'a-longer-id.2', '12345678', 'x'.repeat(64)]) {
    expect([1, 2, 3, 4].map(() => arriveText(frameOf(id)))).toEqual([
      { repeated: null, read: id },
      { repeated: null, read: id },
      { repeated: id, read: id },
      { repeated: id, read: id },
    ])
  }
})

test('another id of the same length is another request', () => {
  for (const id of ['1', '1', '1']) arriveText(frameOf(id))
  expect(arriveText(frameOf('2'))).toEqual({ repeated: null, read: '2' })
  expect(arriveText(frameOf('1'))).toEqual({ repeated: null, read: '1' })
})

test('a connection that reads elsewhere is understood as well', () => {
  for (let time = 0; time < 3; time += 1) arriveText(frameOf('7'))
  const elsewhere = Buffer.from(`before${frameOf('7')}`).subarray('before'.length)
  expect(repeatedTokenGetId(elsewhere, elsewhere.length)).toBe('7')
  expect(repeatedTokenGetId(elsewhere, elsewhere.length - 1)).toBeNull()
})

test('bytes that differ anywhere are never taken for the request before', () => {
  const frame = Buffer.from(frameOf('one'), 'latin1')
  const changed = tuple(integer({ min: 0, max: frame.length - 1 }), integer({ min: 0, max: 255 }))
  assert(
    property(changed, ([at, byte]) => {
      for (let time = 0; time < 3; time += 1) arrive(frame)
      const other = Buffer.from(frame)
      other[at] = byte
      expect(repeatedTokenGetId(other, other.length)).toBe(other.equals(frame) ? 'one' : null)
    }),
    { numRuns: 2_000 },
  )
})

test('what is recognised by bytes is what the text says, whatever came before', () => {
  const request = constantFrom('1', '2', 'abc', 'abd', '12345678', '12345679').map((id) =>
    Buffer.from(frameOf(id)),
  )
  const noise = uint8Array({ maxLength: 60 })
  assert(
    property(tuple(request, request, noise, request, request, request), (arrivals) => {
      for (const bytes of arrivals) {
        const { repeated, read } = arrive(bytes)
        expect([null, read]).toContain(repeated)
      }
    }),
    { numRuns: 1_000 },
  )
})
