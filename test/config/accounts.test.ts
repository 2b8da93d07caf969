import { userInfo } from 'node:os'
import { describe, expect, it } from 'vitest'

import { idOf, localUser } from '../../src/config/accounts.ts'

describe('the id of an account', () => {
  it('is that of a name, or the number itself', async () => {
    const { username, uid } = userInfo()
    expect(await idOf('user', username)).toBe(uid)
    expect(await idOf('group', 'root')).toBe(0)
    expect(await idOf('user', 4242)).toBe(4242)
    expect(await idOf('user', '4242')).toBe(4242)
    expect(localUser('root')).toEqual({ uid: 0, gid: 0 })
  })
  it('is none where nobody knows the name, an option of getent or a number too large', async () => {
    expect(await idOf('user', 'no-such-user')).toBeUndefined()
    expect(await idOf('group', '--help')).toBeUndefined()
    expect(await idOf('user', '4294967295')).toBeUndefined()
    expect(localUser('no-such-user')).toBeUndefined()
  })
})
