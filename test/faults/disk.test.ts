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

test.skipIf(!canMount)(
  'a full disk holds up no client, is logged once, leaves the good file until its token ends, and is recovered from',
  async () => {
    const run = join(world.directory, 'run')
    const disk = smallDisk(run)
    const daemon = await world.started()
    const [token, state] = [join(run, 'token'), join(run, 'state.json')]
    const { accessToken: first } = await tokenOf(daemon)
    await expectUntil('its files', () => textOf(token) === first && textOf(state)?.includes(first))
    const seen = new Set<string | undefined>()
    const looks = setInterval(() => seen.add(textOf(token)), 1)
    onTestFinished(() => clearInterval(looks))
    disk.fill()
    await rotate(daemon)
    const last = await rotate(daemon)
    const failed = (): unknown[] => daemon.records('file-error').filter(({ path }) => path === token)
    await expectUntil('the record', () => failed().length > 0)
    const error = expect.stringMatching(/no space is left in .*: free some/) as string
    expect(failed()).toMatchObject([{ error }])
    const files = [{ ok: false, present: true, error }]
    expect(await statusOf(daemon)).toMatchObject({ state: 'ready', files })
    expect(seen).toEqual(new Set([first]))
    disk.empty()
    await repaired(daemon, 'the token file', () => textOf(token) === last)
    await repaired(daemon, 'the token to be kept', () => textOf(state)?.includes(last))
    // One may be under way.
    await expectUntil('no file that is only half written', () =>
      readdirSync(run).every((name) => !name.endsWith('.kyc')),
    )
    const lifeS = 8
    world.service.answer(() => granting(freshToken(lifeS)))
    const short = await rotate(daemon)
    await repaired(daemon, 'the short one', () => textOf(token) === short)
    clearInterval(looks)
    expect(seen).not.toContain(undefined)
    world.service.answer(() => granting(freshToken()))
    disk.fill()
    await rotate(daemon)
    await expectUntil('the fault', async () => (await statusOf(daemon)).files[0]?.ok === false)
    expect(textOf(token)).toBe(short)
    await expectUntil('its end', () => textOf(token) !== short, { withinMs: lifeS * 1_000 + 16_000 })
    expect(await daemon.end()).toBe(0)
  },
  90_000,
)

test.skipIf(!canMount)(
  'a start in a runtime directory that is read-only ends with 78 and the remedy',
  async () => {
    await smallDisk(join(world.directory, 'run')).makeReadOnly()
    const daemon = world.start()
    expect(await daemon.ended()).toBe(78)
    // After the records of files that it could not write.
    const last = daemon.stderr().trim().split('\n').at(-1)
    expect(last).toMatch(/^Cannot write .*: .* is read-only; a unit needs/)
    expect(world.service.requests).toHaveLength(0)
  },
)
