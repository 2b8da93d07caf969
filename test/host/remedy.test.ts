import { symlinkSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { expect, test } from 'vitest'
import { FileError } from '../../src/files/file-error.ts'
import { createRemedies, type FaultName } from '../../src/host/remedy.ts'
import { permanentReasons, transientReasons } from '../../src/protocol.ts'
import { startProgram } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const CHECKOUT = resolve(import.meta.dirname, '../../src/cli.ts')
const eu = createRemedies({ account: 'eu', isUnit: true })

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

test('a remedy has commands of this account, by sudo in the unit, and of this daemon of a person', () => {
  expect(eu.remedyOf('account-not-found')).toMatch(
    /: `sudo kyc-tokend check --account eu && sudo systemctl reload kyc-tokend@eu && sudo kyc-tokend refresh --account eu`$/,
  )
  const person = createRemedies({ isUnit: false, pid: 7, socket: '/a b/ipc.sock', configFile: '/c.json' })
  expect(person.remedyOf('rejected')).toMatch(
    /: `kyc-tokend check --config \/c\.json && kill -HUP 7 && kyc-tokend refresh --socket '\/a b\/ipc\.sock'`$/,
  )
  // What commands find by themselves is not named.
  const found = { socket: '/run/kyc-tokend/ipc.sock', configFile: '/etc/kyc-tokend/kyc-tokend.config.yaml' }
  expect(createRemedies({ isUnit: false, ...found }).remedyOf('no-token')).toMatch(
    /: `kyc-tokend status && kyc-tokend check`$/,
  )
  // A command that needs a daemon is left out where none is known.
  expect(createRemedies({ isUnit: false }).remedyOf('changed-on-disk')).not.toContain('`')
})

const fileFault = (facts: object): string =>
  createRemedies({ isUnit: true }).remedyOf(
    new FileError({ path: '/srv/out/token', kind: 'system', ...facts }),
  )
const FILES = '/run/kyc-tokend/files'
const REBIND = `sudo systemctl stop kyc-tokend.socket kyc-tokend-http.socket kyc-tokend-alert.path kyc-tokend && sudo systemctl start kyc-tokend`
const EDIT = 'sudo systemctl edit kyc-tokend && sudo systemctl restart kyc-tokend'

test.each<[object, RegExp, string]>([
  // Root changes nothing in a directory that another user may write.
  [{ code: 'EACCES', syscall: 'open' }, /^Cannot write .*: open \(EACCES\); see/, 'namei -lo /srv/out/token'],
  [{ code: 'EPERM', path: `${FILES}/token` }, /is not as a start of the unit makes it$/, REBIND],
  [{ kind: 'unsafe-directory', path: `${FILES}/token` }, /is not as a start/, REBIND],
  [{ code: 'EIO', path: "/a'b/{user}" }, /write in \/a'b, which is no link$/, "namei -lo '/a'\\''b/{user}'"],
  [{ code: 'EROFS' }, /read-only; a unit needs ReadWritePaths=-\/srv\/out$/, EDIT],
  [{ code: 'EDQUOT' }, /^Cannot write \/srv\/out\/token: no space is left/, 'df -h /srv/out'],
  [{ code: 'EPERM', syscall: 'fchown' }, /set Group= .* by a drop-in.*kyc-tokend-changed@/, EDIT],
  // Its user, not root: a directory on the way may be a link of that user.
  [
    { kind: 'odd-target', path: `${FILES}/a b` },
    /no regular file is there/,
    `sudo runuser -u kyc-tokend -- mv -T --backup=numbered '${FILES}/a b' '${FILES}/a b'.old`,
  ],
  [{ kind: 'unsafe-directory', path: '/a', directory: '/a' }, /^Cannot use \/a: others could/, ''],
  [{ kind: 'stalled', seconds: 7 }, /not written for 7 s: check the disk of \/srv\/out/, ''],
])('a file that cannot be written, %j', (facts, sentence, commands) => {
  const [text, rest = '`'] = fileFault(facts).split(': `')
  expect([text, rest.slice(0, -1)]).toEqual([expect.stringMatching(sentence), commands])
})

test('of an input the owner and mode are mended, by sudo in root’s directory, for the group of the daemon alone', () => {
  const { remedyOf } = createRemedies()
  const path = '/etc/kyc-tokend/api key'
  expect(remedyOf({ fault: 'writable', path })).toMatch(/: `sudo chmod go-w '\/etc\/kyc-tokend\/api key'`$/)
  expect(remedyOf({ fault: 'readable', path: '/a' })).toMatch(/: `chmod o-rwx \/a`$/)
  expect(remedyOf({ fault: 'unreadable', path })).toMatch(/use sudo: `namei -lo '\S+ key'`$/)
  expect(eu.remedyOf({ fault: 'unreadable', path: '/etc/kyc-tokend/key' })).toMatch(
    /: `sudo chgrp kyc-tokend \S+\/key && sudo chmod 0640 \S+\/key && namei -lo \S+`$/,
  )
})

test('an open socket is closed by a drop-in of its unit', () => {
  const path = '/run/kyc-tokend/accounts/eu/http.sock'
  expect(eu.remedyOf({ fault: 'open-socket', path })).toMatch(
    /SocketMode=0660 .*: `sudo systemctl edit kyc-tokend-http@eu\.socket && sudo systemctl stop .* && sudo systemctl start kyc-tokend@eu`$/,
  )
  expect(eu.remedyOf({ fault: 'open-socket', path: '/elsewhere' })).not.toContain('sudo')
})

test('each remedy is one sentence with at most three commands, and all its names are known', () => {
  const ofFiles = 'unit-directory read-only ownership full owner odd-target attributes system'.split(' ')
  for (const name of [...permanentReasons, ...transientReasons, 'no-token', 'test', ...ofFiles]) {
    const remedy = eu.remedyOf({ fault: name as FaultName, path: '/a' })
    expect(remedy.split(' && ').length).toBeLessThanOrEqual(3)
    expect(remedy).not.toMatch(/\.$|[{}]/)
  }
})
