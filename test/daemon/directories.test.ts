import { chmodSync, chownSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isMainThread } from 'node:worker_threads'
import { expect, onTestFinished, test, vi } from 'vitest'
import { takeDirectories } from '../../src/daemon/run-daemon.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const isRoot = process.geteuid?.() === 0
const modeOf = (path: string): number => statSync(path).mode & 0o7777

async function directories(...names: string[]) {
  const base = await tempDirectory()
  const [runtimeDirectory, stateDirectory] = [join(base, 'run'), join(base, ...names)]
  return {
    base,
    runtimeDirectory,
    stateDirectory,
    prepare: async () => takeDirectories({ runtimeDirectory, stateDirectory }),
  }
}

// Planted faults run in threads, which share one umask.
test.skipIf(!isMainThread).each([
  ['root', 0, 0o755, 0o000],
  ['an ordinary user', 65_533, 0o700, 0o277],
])(
  'the directories of %s are made, whatever the umask, and those above the state directory',
  async (_, uid, mode, mask) => {
    const { runtimeDirectory, stateDirectory, prepare } = await directories('state')
    vi.spyOn(process, 'geteuid').mockReturnValueOnce(uid)
    const umask = process.umask(mask)
    onTestFinished(() => void process.umask(umask))
    await prepare()
    expect([modeOf(runtimeDirectory), modeOf(stateDirectory)]).toEqual([mode, 0o700])
    process.umask(umask)
    const { stateDirectory: deep, prepare: prepareDeep } = await directories('a', 'b')
    await prepareDeep()
    expect(modeOf(deep)).toBe(0o700)
  },
)

test('one that is there stays as it is', async () => {
  const { stateDirectory, prepare } = await directories('state')
  mkdirSync(stateDirectory)
  chmodSync(stateDirectory, 0o2751)
  await prepare()
  expect(modeOf(stateDirectory)).toBe(0o2751)
})

test.each([
  ['every user may write', (path: string) => chmodSync(path, 0o1777), /others could exchange/],
  ['a group may write', (path: string) => chmodSync(path, 0o770), /others could exchange/],
  ...(isRoot
    ? [
        [
          'another user is the owner',
          (path: string) => chownSync(path, 65_533, 0),
          /others could exchange/,
        ] as const,
      ]
    : []),
] as const)('one of which %s is refused (78)', async (_, change, sentence) => {
  const { runtimeDirectory, prepare } = await directories('state')
  mkdirSync(runtimeDirectory)
  change(runtimeDirectory)
  await expect(prepare()).rejects.toMatchObject({
    status: 78,
    message: expect.stringMatching(sentence) as string,
  })
})

test.each([
  ['a file', (path: string) => writeFileSync(path, '')],
  ['a link', (path: string) => symlinkSync('/tmp', path)],
])('%s in the way is refused (78)', async (_, make) => {
  const { runtimeDirectory, prepare } = await directories('state')
  make(runtimeDirectory)
  await expect(prepare()).rejects.toMatchObject({ status: 78 })
})
