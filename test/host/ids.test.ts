import { describe, expect, it } from 'vitest'
import { idOf, localUser, nameOf } from '../../src/host/ids.ts'

describe('the id of an account', () => {
  it('is that of a name, or the number itself', async () => {
    expect(await idOf('user', 'root')).toBe(0)
    expect(await idOf('group', 'root')).toBe(0)
    expect(await idOf('user', 4242)).toBe(4242)
    expect(await idOf('user', '4242')).toBe(4242)
    expect(localUser('root')).toEqual({ uid: 0, gid: 0 })
  })
  it('is none for an unknown name or a number too large', async () => {
    expect(await idOf('user', 'no-such-user')).toBeUndefined()
    expect(await idOf('user', '4294967295')).toBeUndefined()
    expect(localUser('no-such-user')).toBeUndefined()
  })
  it('is the name of what a remedy gives it to, where it is known here', () => {
    const names = [nameOf('user', 0), nameOf('group', 0), nameOf('user', 4_242_424)]
    expect(names).toEqual(['root', 'root', '4242424'])
  })
})
