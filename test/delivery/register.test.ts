import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createRegister } from '../../src/delivery/register.ts'

const sorted = (numbers: readonly number[]): number[] => numbers.toSorted((one, other) => one - other)

test('it holds what a Map would, whatever comes and goes', () => {
  const keys = Array.from({ length: 6 }, (_, index) => ({ index }))
  const step = fc.record({
    key: fc.constantFrom(...keys),
    value: fc.option(fc.integer(), { nil: undefined }),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const register = createRegister<object, number>()
      const map = new Map<object, number>()
      for (const { key, value } of steps) {
        if (value === undefined) {
          register.delete(key)
          map.delete(key)
        } else {
          register.set(key, value)
          map.set(key, value)
        }
        expect(sorted(register.values)).toEqual(sorted([...map.values()]))
        for (const each of keys) expect(register.get(each)).toBe(map.get(each))
      }
    }),
  )
})

test('a key may be in several of them', () => {
  const key = {}
  const [one, other] = [createRegister<object, string>(), createRegister<object, string>()]
  one.set(key, 'one')
  other.set(key, 'other')
  one.delete(key)
  expect([one.get(key), other.get(key)]).toEqual([undefined, 'other'])
})
