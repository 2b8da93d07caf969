import { mkdirSync, symlinkSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { expect, test } from 'vitest'
import { openSocket, rendered, unitPlace } from '../../src/host/place-commands.ts'
import { startProgram } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const CHECKOUT = resolve(import.meta.dirname, '../../src/cli.ts')

/** The command that starts a daemon, as a client prints it that finds none. */
async function printed(path: string, program = CHECKOUT): Promise<string> {
  const env = { PATH: path, XDG_RUNTIME_DIR: '/nowhere' }
  const { stderr } = await startProgram([process.execPath, program, 'status'], { env, cwd: '/' }).ended
  return / or `(.*) run`/.exec(stderr)?.[1] ?? stderr
}

test('a printed command is one that works here: by its name where a shell finds that, else by its path', async () => {
  const directory = await tempDirectory()
  const [bin, other, npx] = ['bin', 'other', 'node_modules/.bin'].map((name) => join(directory, name)) as [
    string,
    string,
    string,
  ]
  for (const each of [bin, other, npx]) mkdirSync(each, { recursive: true })
  for (const each of [bin, npx]) symlinkSync(CHECKOUT, join(each, 'kyc-tokend'))
  symlinkSync('/bin/true', join(other, 'kyc-tokend'))
  expect(await printed(`/usr/bin:${bin}`)).toBe('kyc-tokend')
  expect(await printed('/usr/bin', join(bin, 'kyc-tokend'))).toBe(`${process.execPath} ${CHECKOUT}`)
  // That of another installation, and the one that npx alone finds.
  for (const path of ['', other, npx]) {
    const command = await printed(path)
    expect(command).toBe(`${process.execPath} ${CHECKOUT}`)
    const words = ['sh', '-c', `${command} --version`]
    const { status, stdout } = await startProgram(words, { cwd: '/', env: { PATH: '/bin' } }).ended
    expect([status, stdout]).toEqual([0, expect.stringMatching(/^kyc-tokend \d/)])
  }
})

test('the drop-in that closes an open socket is read after the one that `systemctl edit` writes', () => {
  const sentence = rendered(openSocket('/run/kyc-tokend/http.sock', unitPlace(undefined)))
  const [, name = ''] =
    /tee \/etc\/systemd\/system\/kyc-tokend-http\.socket\.d\/(\S+) &&/.exec(sentence) ?? []
  expect([name, 'override.conf'].toSorted()).toEqual(['override.conf', name])
})

test('the remedy of an open socket leaves an account its group', () => {
  const path = '/run/kyc-tokend/accounts/eu/ipc.sock'
  expect(rendered(openSocket(path, unitPlace('eu')))).not.toContain('SocketGroup')
})
