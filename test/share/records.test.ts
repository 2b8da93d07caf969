import { expect, test } from 'vitest'
import { isFencePossible } from '../../src/share/records.ts'

const NOW = 1_800_000_000_000
const DAY_MS = 86_400_000

test('a fence is possible up to a day ahead of the clock of the store', () => {
  const fences = [1, NOW, NOW + DAY_MS, NOW + DAY_MS + 1, 0.5, Infinity]
  expect(fences.map((fence) => isFencePossible(fence, NOW))).toEqual([true, true, true, false, false, false])
})
