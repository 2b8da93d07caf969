import { chmodSync, chownSync, lstatSync } from 'node:fs'
import { expect, it, test } from 'vitest'
import { accessListOf } from '../../src/lib/access-list.ts'
import { directoryAccess, isHeldBySticky } from '../../src/lib/directory-access.ts'
import { differenceOf, pathTable, type PathRow } from '../../src/host/path-table.ts'
import { letWrite, setAccessList } from '../support/access-list.ts'
import { lacks } from '../support/lacks.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const [DAEMON, CLIENTS, ANOTHER] = [4242, 4244, 4245]
const OWNER = { tag: 'owner', bits: 7 } as const
const OTHERS = { tag: 'others', bits: 1 } as const
const MAKE = 'sudo systemd-tmpfiles --create kyc-tokend.conf'

function rowsOf(account?: string): PathRow[] {
  const runtimeDirectory = account === undefined ? '/run/kyc-tokend' : `/run/kyc-tokend/accounts/${account}`
  const stateDirectory =
    account === undefined ? '/var/lib/kyc-tokend' : `/var/lib/kyc-tokend/accounts/${account}`
  const sockets = [{ path: `${runtimeDirectory}/ipc.sock`, uid: DAEMON, gid: CLIENTS, mode: 0o660 }]
  const place = { account, isUnit: true }
  const people = { uid: DAEMON, clients: [CLIENTS] }
  return pathTable({ runtimeDirectory, stateDirectory, sockets }, people, { isRunning: false, ...place })
}

const runtimeRow = (): PathRow => rowsOf().find(({ path }) => path === '/run/kyc-tokend')!

test('no remedy of the directories is a chmod, and none leads root through one of the daemon’s user', () => {
  for (const account of [undefined, 'eu']) {
    const directories = rowsOf(account).filter(
      ({ path, kind }) => kind === 'directory' && path.startsWith('/run'),
    )
    const restart = [
      'sudo systemctl stop kyc-tokend@eu.socket kyc-tokend-http@eu.socket ' +
        'kyc-tokend-alert@eu.path kyc-tokend@eu',
      'sudo systemctl start kyc-tokend@eu',
    ]
    expect(
      directories.map(({ path, uid, mode, commands }) => [path, uid, mode.toString(8), commands]),
    ).toEqual(
      account === undefined
        ? [['/run/kyc-tokend', 0, '3751', [MAKE]]]
        : [
            ['/run/kyc-tokend', 0, '3751', [MAKE]],
            ['/run/kyc-tokend/accounts', 0, '751', [MAKE]],
            ['/run/kyc-tokend/accounts/eu', 0, '3751', restart],
          ],
    )
    const commands = rowsOf(account).flatMap((row) => row.commands)
    expect(commands).toContain('sudo chown -hR kyc-tokend:kyc-tokend /var/lib/kyc-tokend')
  }
})

it.runIf(process.getuid!() === 0 && !lacks('python3'))(
  'the runtime directory lets the daemon’s user write by its access list, and nobody else',
  async () => {
    const path = await tempDirectory()
    const make = (mode: number, ...writers: number[]): void => {
      setAccessList(path, [OWNER, { tag: 'owning group', bits: 5 }, OTHERS])
      chownSync(path, 0, CLIENTS)
      chmodSync(path, mode)
      if (writers.length > 0) letWrite(path, ...writers)
    }
    const difference = async (): Promise<string | undefined> =>
      differenceOf(runtimeRow(), { stats: lstatSync(path), list: await accessListOf(path) })?.text.replace(
        /, so that.*/,
        '',
      )
    make(0o3751, DAEMON)
    expect(lstatSync(path).mode & 0o7777).toBe(0o3771)
    expect(await difference()).toBeUndefined()
    const name = 'the runtime directory /run/kyc-tokend'
    chmodSync(path, 0o3751)
    expect(await difference()).toBe(`${name} has no access list by which the user ${DAEMON} may write`)
    make(0o3751)
    expect(await accessListOf(path)).toBeNull()
    expect(await difference()).toBe(`${name} has no access list by which the user ${DAEMON} may write`)
    make(0o3751, DAEMON, ANOTHER)
    expect(await difference()).toBe(`${name} lets the user ${ANOTHER} write, too`)
    make(0o3751, DAEMON)
    const [group, mask] = (['owning group', 'mask'] as const).map((tag) => ({ tag, bits: 7 }))
    setAccessList(path, [OWNER, { tag: 'user', id: DAEMON, bits: 7 }, group!, mask!, OTHERS])
    expect(await difference()).toBe(`${name} lets its group write, too`)
    make(0o755, DAEMON)
    expect(await difference()).toBe(`${name} has the mode 0771 and needs 3771`)
    chownSync(path, DAEMON, CLIENTS)
    expect(await difference()).toBe(`${name} belongs to the user ${DAEMON}, which is gone, and not to root`)
  },
)

it.skipIf(lacks('python3'))(
  'a directory whose access list lets the daemon’s user alone write is not shared with its group',
  async () => {
    const path = await tempDirectory()
    const uid = process.getuid!()
    letWrite(path, uid)
    const { mode } = lstatSync(path)
    expect(mode & 0o020).not.toBe(0)
    expect(directoryAccess({ mode, uid }, uid, await accessListOf(path)).writers).toBe('owner')
    letWrite(path, uid, ANOTHER)
    expect(directoryAccess({ mode, uid }, uid, await accessListOf(path)).writers).toBe('group')
  },
)

test.each([
  [DAEMON, DAEMON, 0o1771, 0, false],
  [DAEMON, 0, 0o1771, 0, true],
  [DAEMON, 0, 0o771, 0, false],
  [DAEMON, ANOTHER, 0o1771, DAEMON, false],
  [0, ANOTHER, 0o1777, ANOTHER, false],
])(
  'user %i, a file of %i in a directory with mode %o of %i: held %s',
  (user, file, mode, owner, expected) => {
    expect(isHeldBySticky({ uid: file }, { mode, uid: owner }, user)).toBe(expected)
  },
)

test('of the configuration directory nobody but root may write, and it is not opened', () => {
  const row = rowsOf().find(({ path }) => path === '/etc/kyc-tokend')!
  const found = (mode: number, uid = 0) => ({
    stats: Object.assign(lstatSync('/'), { uid, mode: 0o040000 | mode }),
    list: null,
  })
  expect(differenceOf(row, found(0o750))).toBeUndefined()
  expect(differenceOf(row, found(0o777))?.text).toMatch(/by which others may write in it/)
  expect(differenceOf(row, found(0o700))?.commands.at(-1)).toBe('sudo chmod 0750 /etc/kyc-tokend')
  expect(differenceOf(row, found(0o750, DAEMON))?.text).toMatch(/belongs to the user 4242/)
})

test('the state directory of a daemon that runs must be there', () => {
  const stateOf = (isRunning: boolean) =>
    pathTable(
      { runtimeDirectory: '/run/kyc-tokend', stateDirectory: '/var/lib/kyc-tokend', sockets: [] },
      { uid: DAEMON, clients: [CLIENTS] },
      { account: undefined, isUnit: true, isRunning },
    ).find(({ path }) => path === '/var/lib/kyc-tokend')!
  const nothing = { stats: null, list: null }
  expect(differenceOf(stateOf(true), nothing)?.text).toMatch(/is not there/)
  expect(differenceOf(stateOf(false), nothing)).toBeUndefined()
})

test('what a directory in the place of a socket or a file holds is kept', async () => {
  const path = await tempDirectory()
  const row = { ...rowsOf().find(({ kind }) => kind === 'socket')!, path }
  const [first] = differenceOf(row, { stats: lstatSync(path), list: null })?.commands ?? []
  expect(first).toBe(`sudo mv -T --backup=numbered ${path} ${path}.old`)
})
