import { spawnSync } from 'node:child_process'
import { constants, lstatSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { chmod, chown, mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isMainThread } from 'node:worker_threads'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { removeFile, replaceFile, type FileAttributes } from '../../src/files/replace-file.ts'
import { methodOf, recordFileCalls, watchFileCalls } from '../support/file-calls.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const EXCLUSIVE = constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW
const WRITER = new URL('killed-writer.ts', import.meta.url).pathname

const modeOf = (path: string): string => (statSync(path).mode & 0o7777).toString(8)
const contentOf = (path: string): string => readFileSync(path, 'utf8')
const openFiles = (): number => readdirSync('/proc/self/fd').length
const write = async (path: string, text: string, attributes: FileAttributes = { mode: 0o600 }) =>
  replaceFile(path, { text, attributes })

describe.each(['disk', 'memory'] as const)('a file on %s', (where) => {
  // Planted faults run in threads, which share one umask.
  it.skipIf(!isMainThread)('is made with its mode whatever the umask, and leaves nothing else', async () => {
    const directory = await tempDirectory(where)
    const path = join(directory, 'token')
    const [umask, open] = [process.umask(), openFiles()]
    onTestFinished(() => void process.umask(umask))
    for (const mask of [0o000, 0o022, 0o777]) {
      process.umask(mask)
      await write(path, `under ${mask}`, { mode: 0o640 })
      expect([modeOf(path), contentOf(path)]).toEqual(['640', `under ${mask}`])
    }
    expect([openFiles(), readdirSync(directory)]).toEqual([open, ['token']])
  })

  it('is never written through a link, into a directory or into a FIFO', async () => {
    const directory = await tempDirectory(where)
    const victim = join(directory, 'victim')
    await writeFile(victim, 'untouched')
    await symlink(victim, join(directory, 'link'))
    await mkdir(join(directory, 'directory'))
    spawnSync('mkfifo', [join(directory, 'fifo')])
    const names = readdirSync(directory)
    for (const name of ['link', 'directory', 'fifo']) {
      const path = join(directory, name)
      await expect(write(path, 'x')).rejects.toMatchObject({ kind: 'odd-target', path })
      await expect(removeFile(path)).rejects.toMatchObject({ kind: 'odd-target', path })
    }
    expect([contentOf(victim), readdirSync(directory)]).toEqual(['untouched', names])
    expect(lstatSync(join(directory, 'fifo')).isFIFO()).toBe(true)
  })

  it('is synced before it gets its name, and the directory after it, also after a removal', async () => {
    const path = join(await tempDirectory(where), 'token')
    const names = await recordFileCalls(async () => write(path, 'x', { mode: 0o640 }))
    const order = ['writeFile', 'fsync', 'rename', 'fsync']
    expect(names.filter((name) => order.includes(name))).toEqual(order)
    const removal = await recordFileCalls(async () => removeFile(path))
    expect(removal.slice(removal.lastIndexOf('unlink'))).toContain('fsync')
    expect(readdirSync(join(path, '..'))).toEqual([])
  })

  it.each([
    ['mode', 'fchmod', { mode: 0o640 }],
    ['owner', 'fchown', { mode: 0o600, uid: 12_345 }],
    ['group', 'fchown', { mode: 0o600, gid: 12_345 }],
  ] as const)('is none where the file system does not keep its %s', async (_, call, attributes) => {
    const directory = await tempDirectory(where)
    const path = join(directory, 'token')
    const ignored = vi.spyOn(...methodOf(call)).mockResolvedValue(undefined)
    onTestFinished(() => ignored.mockRestore())
    await expect(write(path, 'x', attributes)).rejects.toMatchObject({ kind: 'attributes', path })
    expect(readdirSync(directory)).toEqual([])
  })

  it('closes what it opened, and keeps the first error, where the file system then refuses everything', async () => {
    const path = join(await tempDirectory(where), 'token')
    const refusal = (code: string): Error => Object.assign(new Error(code), { code, syscall: 'fsync' })
    const unlink = vi.spyOn(...methodOf('unlink')).mockRejectedValueOnce(refusal('ENOENT'))
    unlink.mockRejectedValue(refusal('EROFS'))
    const fsync = vi.spyOn(...methodOf('fsync')).mockRejectedValue(refusal('EIO'))
    onTestFinished(() => [unlink, fsync].forEach((spy) => spy.mockRestore()))
    const open = openFiles()
    const error = { kind: 'system', code: 'EIO', syscall: 'fsync', path }
    await expect(write(path, 'x')).rejects.toMatchObject(error)
    expect(openFiles()).toBe(open)
  })
})

it('is refused in a directory in which every user may write, sticky or not, and allowed where a group may', async () => {
  const directory = await tempDirectory('memory')
  const path = join(directory, 'token')
  for (const mode of [0o777, 0o1777]) {
    await chmod(directory, mode)
    await expect(write(path, 'x')).rejects.toMatchObject({ kind: 'unsafe-directory', directory })
  }
  await chmod(directory, 0o770)
  await write(path, 'x')
})

it('is the old file or the new one after a kill at any step, and the next removal leaves nothing', async () => {
  const directory = await tempDirectory('memory')
  const path = join(directory, 'token')
  const seen = new Set<string>()
  for (let step = 0, isKilled = true; isKilled; step += 1) {
    await write(path, 'old', { mode: 0o640 })
    expect(readdirSync(directory)).toEqual(['token'])
    const child = spawnSync(process.execPath, [WRITER, path, 'new', String(step)])
    isKilled = child.signal === 'SIGKILL'
    const isRenamed = child.stdout.toString().includes('rename')
    expect(isKilled || isRenamed).toBe(true)
    expect([modeOf(path), contentOf(path)]).toEqual(['640', isRenamed ? 'new' : 'old'])
    seen.add(`${contentOf(path)} ${readdirSync(directory).length}`)
    if (step % 2 === 0) await removeFile(path)
    if (step % 2 === 0) expect(readdirSync(directory)).toEqual([])
  }
  expect(seen).toEqual(new Set(['old 1', 'old 2', 'new 1']))
})

it.skipIf(process.geteuid?.() !== 0)(
  'of root is exclusive and private, gets owner, mode and content in this order, and is in no other user’s directory',
  async () => {
    const directory = await tempDirectory()
    const path = join(directory, 'token')
    const seen: unknown[] = []
    const end = watchFileCalls((name, args) => {
      if (name === 'open' && typeof args[2] === 'number') seen.push(Number(args[1]) & EXCLUSIVE, args[2])
      if (!['fchown', 'fchmod', 'writeFile', 'rename'].includes(name)) return
      const { mode, uid, gid, size } = statSync(join(directory, readdirSync(directory)[0]!))
      seen.push(`${name} ${(mode & 0o7777).toString(8)} ${uid} ${gid} ${size}`)
    })
    await write(path, 'content', { mode: 0o640, uid: 65533, gid: 12345 })
    end()
    const steps = ['fchown 600 0 0 0', 'fchmod 600 65533 12345 0', 'writeFile 640 65533 12345 0']
    expect(seen).toEqual([EXCLUSIVE, 0o600, ...steps, 'rename 640 65533 12345 7'])
    // The directory gives the group.
    await chown(directory, 0, 12345)
    await chmod(directory, 0o2750)
    const names = await recordFileCalls(async () => write(path, 'x', { mode: 0o640, gid: 12345 }))
    expect([names.includes('fchown'), statSync(path).gid]).toEqual([false, 12345])
    await chown(directory, 65533, 12345)
    await expect(write(path, 'x')).rejects.toMatchObject({ kind: 'unsafe-directory' })
  },
)
