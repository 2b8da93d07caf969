import { expect, test } from 'vitest'
import { idOf, localUser, nameOf } from '../../src/host/ids.ts'

test('the id is that of a name, or the number itself; the largest number is none', () => {
  const ids = ['root', 4242, '4242', 'no-such-user', '4294967295'].map((name) => idOf('user', name))
  expect([...ids, idOf('group', 'root')]).toEqual([0, 4242, 4242, undefined, undefined, 0])
  expect([localUser('root'), localUser('no-such-user')]).toEqual([{ uid: 0, gid: 0 }, undefined])
  expect([nameOf('user', 0), nameOf('user', 4_242_424)]).toEqual(['root', '4242424'])
})
