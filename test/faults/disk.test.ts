// Directories that are full, read-only or gone: the daemon serves on, says so once, and recovers by itself.
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { textOf, tokenFile, type Daemon } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { freshToken, statusOf, tokenOf } from '../support/outside.ts'
import { granting } from '../support/service.ts'
import { canMount, smallDisk, type SmallDisk } from '../support/small-disk.ts'
import { expectUntil } from '../support/until.ts'

const world = useDaemons()

/** Both ways in which a disk takes nothing, how they begin and end, and what is said of them. */
const FAULTS = [
  {
    kind: 'full',
    spoil: (disk: SmallDisk) => disk.fill(),
    repair: (disk: SmallDisk) => disk.empty(),
    remedy: /no space is left in .*: free some/,
  },
  {
    kind: 'read-only',
    spoil: (disk: SmallDisk) => disk.readOnly(true),
    repair: (disk: SmallDisk) => disk.readOnly(false),
    remedy: /is read-only/,
  },
] as const

const inRun = (name: string): string => join(world.directory, 'run', name)
const inState = (name: string): string => join(world.directory, 'state', name)

async function started(): Promise<Daemon> {
  const daemon = await world.started()
  const { accessToken } = await tokenOf(daemon)
  await expectUntil('the token file', () => tokenFile(daemon) === accessToken)
  // Written last: nothing is under way any more.
  await expectUntil('the memory', () =>
    ['"generation":1', '"pairs":{}'].every((part) => textOf(inState('state.json'))?.includes(part)),
  )
  return daemon
}

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

const errors = (daemon: Daemon, event: string, path: string): string[] =>
  daemon
    .records(event)
    .filter((line) => line['path'] === path)
    .map((line) => String(line['error']))

test.skipIf(!canMount).each(FAULTS)(
  'a runtime directory that is $kind holds up no client, is logged once, and is recovered from',
  async ({ kind, spoil, repair, remedy }) => {
    const disk = smallDisk(join(world.directory, 'run'))
    const daemon = await started()
    await spoil(disk)
    await rotate(daemon)
    const token = await rotate(daemon)
    const failed = (name: string): string[] => errors(daemon, 'file-error', inRun(name))
    // A file that is removed leaves the space for another one: on a full disk some are written.
    const isLogged = (): boolean =>
      kind === 'full'
        ? ['state.json', 'token'].some((name) => failed(name).length > 0)
        : ['state.json', 'token'].every((name) => failed(name).length > 0)
    await expectUntil('the records', isLogged)
    for (const logged of ['state.json', 'token'].flatMap(failed)) expect(logged).toMatch(remedy)
    const status = await statusOf(daemon)
    expect(status.state).toBe('ready')
    if (kind === 'read-only') {
      expect(status.files[0]).toMatchObject({ ok: false, error: expect.stringMatching(remedy) as string })
      expect(errors(daemon, 'file-error', inRun('token'))).toHaveLength(1)
    }
    await repair(disk)
    await repaired(daemon, 'the token file', () => tokenFile(daemon) === token)
    await repaired(daemon, 'the token to be kept', () => textOf(inRun('state.json'))?.includes(token))
    await vi.waitFor(
      async () => expect((await statusOf(daemon)).files[0]).toMatchObject({ ok: true, error: null }),
      20_000,
    )
    // One may be under way.
    await expectUntil('no file that is only half written', () =>
      readdirSync(inRun('')).every((name) => !name.endsWith('.kyc')),
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
    const isFailing = async () => (await statusOf(daemon)).files[0]
    await expectUntil('the fault', async () => (await isFailing())?.ok === false)
    expect(await isFailing()).toMatchObject({
      present: true,
      error: expect.stringMatching(FAULTS[0].remedy) as string,
    })
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
    await expectUntil('the fault', async () => (await isFailing())?.ok === false)
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
