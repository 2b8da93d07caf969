import { symlinkSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { expect, test } from 'vitest'
import { FileError } from '../../src/files/file-error.ts'
import { createRemedies, type Remedy } from '../../src/host/remedy.ts'
import { permanentReasons, transientReasons } from '../../src/protocol.ts'
import { startProgram } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const CHECKOUT = resolve(import.meta.dirname, '../../src/cli.ts')

test('outside of the package a printed command names Node and file, and works whatever the PATH', async () => {
  const link = join(await tempDirectory(), 'kyc-tokend')
  symlinkSync(CHECKOUT, link)
  const env = { PATH: '/bin', XDG_RUNTIME_DIR: '/nowhere' }
  const { stderr } = await startProgram([process.execPath, link, 'status'], { env, cwd: '/' }).ended
  const command = / or `(.*) run`/.exec(stderr)?.[1]
  expect(command).toBe(`${process.execPath} ${CHECKOUT}`)
  const { stdout } = await startProgram(['sh', '-c', `${command} --version`], { cwd: '/', env }).ended
  expect(stdout).toMatch(/^kyc-tokend \d/)
})

test('a remedy is one sentence with at most three commands, of this account, by sudo in the unit', () => {
  const eu = createRemedies({ account: 'eu', isUnit: true })
  expect(eu.remedyOf('account-not-found')).toMatch(
    /: `sudo kyc-tokend check --account eu && sudo systemctl reload kyc-tokend@eu && sudo kyc-tokend refresh --account eu`$/,
  )
  const own = { account: undefined, isUnit: false, pid: 7, socket: '/a b/ipc.sock', config: '/c.json' }
  const person = createRemedies({ ...own, program: 'npx kyc-tokend' })
  expect(person.remedyOf('rejected')).toMatch(
    /: `npx kyc-tokend check --config \/c\.json && kill -HUP 7 && npx kyc-tokend refresh --socket '\/a b\/ipc\.sock'`$/,
  )
  // One that needs a daemon is left out where none is known.
  expect(createRemedies({ account: undefined, isUnit: false }).partsOf('changed-on-disk').commands).toEqual(
    [],
  )
  for (const reason of [...permanentReasons, ...transientReasons, 'no-token', 'test'] as const) {
    const { text, commands } = eu.partsOf(reason)
    expect(commands.length).toBeLessThanOrEqual(3)
    expect(text).not.toMatch(/\.$/)
  }
})

const place = { account: undefined, isUnit: true }
const fileFault = (facts: object): Remedy => {
  const error = new FileError({ path: '/srv/out/token', kind: 'system', ...facts })
  return createRemedies(place).partsOf({ kind: 'file', error })
}
const AS_USER = 'sudo runuser -u kyc-tokend --'
const inFiles = { path: '/run/kyc-tokend/files/token' }
const rebind = [
  expect.stringMatching(/^sudo systemctl stop kyc-tokend\.socket /),
  'sudo systemctl start kyc-tokend',
]

test.each<[object, RegExp, unknown[]]>([
  [{ code: 'ENOENT' }, /\/srv\/out is not there: make it for the user kyc-tokend$/, []],
  [{ code: 'ENOENT', ...inFiles }, /is not there: /, rebind],
  // Root changes nothing in a directory that another user may write.
  [{ code: 'EACCES' }, /the user kyc-tokend may not write in \/srv\/out: /, []],
  [{ code: 'EPERM', ...inFiles }, /the user kyc-tokend may not write/, rebind],
  [
    { code: 'EROFS' },
    /\/srv\/out is read-only for kyc-tokend$/,
    [
      "printf '[Service]\\nReadWritePaths=-/srv/out\\n' | sudo install -D -m 0644 /dev/stdin " +
        '/etc/systemd/system/kyc-tokend.service.d/zz-write-srv-out.conf',
      'sudo systemctl daemon-reload',
      'sudo systemctl restart kyc-tokend',
    ],
  ],
  // The unit may write in its own directories: it is their mount. A drop-in is for plain names alone.
  [{ code: 'EROFS', ...inFiles }, /is read-only/, ['findmnt -T /run/kyc-tokend/files']],
  [
    { code: 'EROFS', path: "/srv/a'b/{user}" },
    /\/a'b is read-only/,
    [expect.stringMatching(/^findmnt -T '/)],
  ],
  [{ code: 'ENOSPC' }, /^Cannot write \/srv\/out\/token: no space is left/, ['df -h /srv/out']],
  ...[{}, inFiles].map((where): [object, RegExp, unknown[]] => [
    { code: 'EPERM', syscall: 'fchown', ...where },
    /set Group= by a drop-in.*kyc-tokend-changed@/,
    ['sudo systemctl edit kyc-tokend'],
  ]),
  [
    { kind: 'odd-target', code: 'EISDIR' },
    /a directory is there, which is never replaced/,
    [`${AS_USER} mv -T --backup=numbered /srv/out/token /srv/out/token.old`],
  ],
  // Its user, not root: a directory on the way may be a link of that user.
  [
    { kind: 'odd-target', code: 'ELOOP', path: '/run/kyc-tokend/files/a b/token' },
    /a link or no regular file is there/,
    [`${AS_USER} rm -f '/run/kyc-tokend/files/a b/token'`],
  ],
  [{ kind: 'unsafe-directory' }, /others could exchange what is made in \/srv\/out: /, []],
  [{ kind: 'unsafe-directory', ...inFiles }, /others could exchange/, rebind],
  [{ code: 'EIO', syscall: 'fsync' }, /fsync \(EIO\)/, ['namei -lo /srv/out/token']],
])('a file that cannot be written, %j', (facts, text, commands) => {
  expect(fileFault(facts)).toEqual({ text: expect.stringMatching(text) as string, commands })
})

test('an open socket is closed after the drop-in of `systemctl edit`, and an account keeps its group', () => {
  const { commands } = createRemedies(place).partsOf({
    kind: 'open-socket',
    path: '/run/kyc-tokend/http.sock',
  })
  const name = /kyc-tokend-http\.socket\.d\/(\S+)/.exec(commands[0] ?? '')?.[1] ?? ''
  // systemd reads drop-ins in this order.
  expect(['override.conf', name].toSorted()).toEqual(['override.conf', name])
  const eu = createRemedies({ account: 'eu', isUnit: true })
  const open = eu.partsOf({ kind: 'open-socket', path: '/run/kyc-tokend/accounts/eu/ipc.sock' })
  expect(open.commands.join(' ')).not.toContain('SocketGroup')
})
