import { chmodSync, chownSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isMainThread } from 'node:worker_threads'
import { expect, onTestFinished, test, vi } from 'vitest'
import { takeDirectories } from '../../src/daemon/run-daemon.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const isRoot = process.geteuid?.() === 0
const modeOf = (path: string): number => statSync(path).mode & 0o7777

/** The runtime directory `run`, and the state directory at this path, below one of the test's. */
async function directories(state = 'state') {
  const base = await tempDirectory()
  const [runtimeDirectory, stateDirectory] = [join(base, 'run'), join(base, state)]
  const take = async () => takeDirectories({ runtimeDirectory, stateDirectory })
  return { runtimeDirectory, stateDirectory, take }
}

// Planted faults run in threads, which share one umask.
test.skipIf(!isMainThread).each([
  ['root', 0, 0o755, 0o000],
  ['an ordinary user', 65_533, 0o700, 0o277],
])('the directories of %s are made, whatever the umask', async (_, uid, mode, mask) => {
  const { runtimeDirectory, stateDirectory, take } = await directories()
  vi.spyOn(process, 'geteuid').mockReturnValueOnce(uid)
  const umask = process.umask(mask)
  onTestFinished(() => void process.umask(umask))
  await take()
  expect([modeOf(runtimeDirectory), modeOf(stateDirectory)]).toEqual([mode, 0o700])
})

test('those above the state directory are made, and one that is there stays as it is', async () => {
  const { runtimeDirectory, stateDirectory, take } = await directories('a/b')
  mkdirSync(runtimeDirectory)
  chmodSync(runtimeDirectory, 0o2751)
  await take()
  expect([modeOf(runtimeDirectory), modeOf(stateDirectory)]).toEqual([0o2751, 0o700])
})

test.each<[string, (path: string) => void, string]>([
  ['one in which every user may write', (path) => mkdirAs(path, 0o1777), 'others could exchange'],
  ['one in which a group may write', (path) => mkdirAs(path, 0o770), 'others could exchange'],
  ['a file', (path) => writeFileSync(path, ''), ''],
  ['a link', (path) => symlinkSync('.', path), ''],
])('%s in place of the runtime directory is refused (78)', async (_, make, sentence) => {
  const { runtimeDirectory, take } = await directories()
  make(runtimeDirectory)
  const message = expect.stringContaining(sentence) as string
  await expect(take()).rejects.toMatchObject({ status: 78, message })
})

test.runIf(isRoot)('a runtime directory of another user is refused (78)', async () => {
  const { runtimeDirectory, take } = await directories()
  mkdirSync(runtimeDirectory)
  chownSync(runtimeDirectory, 65_533, 0)
  const message = expect.stringContaining('others could exchange') as string
  await expect(take()).rejects.toMatchObject({ status: 78, message })
})

function mkdirAs(path: string, mode: number): void {
  mkdirSync(path)
  chmodSync(path, mode)
}
