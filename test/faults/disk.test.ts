// Directories that are full or read-only: the daemon serves on, says so once, and recovers by itself.
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { textOf, type Daemon } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { freshToken, statusOf, tokenOf } from '../support/outside.ts'
import { granting } from '../support/service.ts'
import { canMount, smallDisk } from '../support/small-disk.ts'
import { expectUntil } from '../support/until.ts'

const world = useDaemons()

/** An operator asks for another token; waits until it is served. */
async function rotate(daemon: Daemon): Promise<string> {
  const before = await tokenOf(daemon)
  daemon.process.kill('SIGUSR2')
  return expectUntil('another token', async () => {
    const { accessToken } = await tokenOf(daemon)
    return accessToken !== before.accessToken && accessToken
  })
}

/** Waits until it holds, having the loop look: it does so by itself every 15 s, which one test waits for. */
async function repaired(daemon: Daemon, what: string, isOver: () => boolean | undefined): Promise<void> {
  daemon.process.kill('SIGHUP')
  await expectUntil(what, isOver)
}

/** The state of the one token file. */
const fileOf = async (daemon: Daemon) => (await statusOf(daemon)).files[0]

test.skipIf(!canMount)(
  'a runtime directory that is read-only holds up no client, is logged once, and is recovered from',
  async () => {
    const disk = smallDisk(join(world.directory, 'run'))
    const daemon = await world.started()
    const [token, state] = ['token', 'state.json'].map((name) => join(world.directory, 'run', name)) as [
      string,
      string,
    ]
    const { accessToken: first } = await tokenOf(daemon)
    await expectUntil('its files', () => textOf(token) === first && textOf(state)?.includes(first))
    await disk.readOnly(true)
    await rotate(daemon)
    const last = await rotate(daemon)
    const failed = (path: string): string[] =>
      daemon
        .records('file-error')
        .flatMap((record) => (record['path'] === path ? String(record['error']) : []))
    await expectUntil('the records', () => [token, state].every((path) => failed(path).length > 0))
    const error = expect.stringMatching(/is read-only/) as string
    expect([failed(token), failed(state)]).toEqual([[error], [error]])
    expect(await statusOf(daemon)).toMatchObject({ state: 'ready', files: [{ ok: false, error }] })
    await disk.readOnly(false)
    await repaired(daemon, 'the token file', () => textOf(token) === last)
    await repaired(daemon, 'the token to be kept', () => textOf(state)?.includes(last))
    await expectUntil('the file to be good', async () => (await fileOf(daemon))?.ok)
    // One may be under way.
    await expectUntil('no file that is only half written', () =>
      readdirSync(join(world.directory, 'run')).every((name) => !name.endsWith('.kyc')),
    )
    expect(await daemon.end()).toBe(0)
  },
)

test.skipIf(!canMount)(
  'a refresh on a full disk leaves the good file, until its token ends',
  async () => {
    const disk = smallDisk(join(world.directory, 'small'))
    const path = join(world.directory, 'small', 'token')
    const daemon = await world.started({ tokenFiles: [{ path }] })
    const first = await tokenOf(daemon)
    await expectUntil('the token file', () => textOf(path) === first.accessToken)
    const seen = new Set<string | undefined>()
    const looks = setInterval(() => seen.add(textOf(path)), 1)
    onTestFinished(() => clearInterval(looks))
    disk.fill()
    await rotate(daemon)
    await rotate(daemon)
    await expectUntil('the fault', async () => (await fileOf(daemon))?.ok === false)
    const error = expect.stringMatching(/no space is left in .*: free some/) as string
    expect(await fileOf(daemon)).toMatchObject({ present: true, error })
    expect(seen).toEqual(new Set([first.accessToken]))
    disk.empty()
    const lifeS = 8
    world.service.answer(() => granting(freshToken(lifeS)))
    const short = await rotate(daemon)
    await repaired(daemon, 'the short one', () => textOf(path) === short)
    clearInterval(looks)
    expect(seen).not.toContain(undefined)
    world.service.answer(() => granting(freshToken()))
    disk.fill()
    await rotate(daemon)
    await expectUntil('the fault', async () => (await fileOf(daemon))?.ok === false)
    expect(textOf(path)).toBe(short)
    await expectUntil('its end', () => textOf(path) !== short, { withinMs: lifeS * 1_000 + 16_000 })
  },
  90_000,
)

test.skipIf(!canMount)(
  'a start in a runtime directory that is read-only ends with 78 and the remedy',
  async () => {
    await smallDisk(join(world.directory, 'run')).readOnly(true)
    const daemon = world.start()
    expect(await daemon.ended()).toBe(78)
    // After the records of files that it could not write.
    const last = daemon.stderr().trim().split('\n').at(-1)
    expect(last).toMatch(/^Cannot write .*: .* is read-only; a unit needs/)
    expect(world.service.requests).toHaveLength(0)
  },
)
