import { spawn, spawnSync } from 'node:child_process'
import { constants, lstatSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { chmod, chown, mkdir, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { isMainThread } from 'node:worker_threads'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { clearLeftovers, removeFile, replaceFile } from '../../src/files/atomic-file.ts'
import { fs } from '../../src/files/fs.ts'
import { recordFileCalls, watchFileCalls } from '../support/file-calls.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const EXCLUSIVE = constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW
const isRoot = process.geteuid?.() === 0

const modeOf = (path: string): string => (statSync(path).mode & 0o7777).toString(8)
const contentOf = (path: string): string => readFileSync(path, 'utf8')
const here = (name: string): string => new URL(name, import.meta.url).pathname

describe.each(['disk', 'memory'] as const)('a file on %s', (where) => {
  // Planted faults run in threads, which share one umask.
  it.skipIf(!isMainThread)('is made with its mode whatever the umask', async () => {
    const path = join(await tempDirectory(where), 'token')
    const umask = process.umask()
    onTestFinished(() => void process.umask(umask))
    for (const mask of [0o000, 0o022, 0o777]) {
      process.umask(mask)
      await replaceFile(path, `under ${mask}`, { mode: 0o640 })
      expect(modeOf(path)).toBe('640')
      expect(contentOf(path)).toBe(`under ${mask}`)
    }
  })

  it('is replaced by another one, with nothing else left in the directory', async () => {
    const directory = await tempDirectory(where)
    const path = join(directory, 'token')
    await replaceFile(path, 'old', { mode: 0o600 })
    const before = statSync(path).ino
    const open = readdirSync('/proc/self/fd').length
    await replaceFile(path, 'new', { mode: 0o600 })
    expect(readdirSync('/proc/self/fd')).toHaveLength(open)
    expect(statSync(path).ino).not.toBe(before)
    expect(contentOf(path)).toBe('new')
    expect(readdirSync(directory)).toEqual(['token'])
  })

  it('is never written through a link, into a directory or into a FIFO', async () => {
    const directory = await tempDirectory(where)
    const victim = join(directory, 'victim')
    await writeFile(victim, 'untouched')
    await symlink(victim, join(directory, 'link'))
    await mkdir(join(directory, 'directory'))
    spawnSync('mkfifo', [join(directory, 'fifo')])
    const names = readdirSync(directory)
    for (const [name, code] of Object.entries({ link: 'ELOOP', directory: 'EISDIR', fifo: undefined })) {
      const path = join(directory, name)
      const error = { kind: 'odd-target', path, code }
      await expect(replaceFile(path, 'x', { mode: 0o600 })).rejects.toMatchObject(error)
    }
    await expect(removeFile(join(directory, 'link'))).rejects.toMatchObject({ kind: 'odd-target' })
    expect(contentOf(victim)).toBe('untouched')
    expect(readdirSync(directory)).toEqual(names)
    expect(lstatSync(join(directory, 'fifo')).isFIFO()).toBe(true)
  })

  it('is synced before it gets its name, and the directory after it', async () => {
    const path = join(await tempDirectory(where), 'token')
    const names = await recordFileCalls(async () => replaceFile(path, 'x', { mode: 0o640 }))
    const order = ['writeFile', 'fsync', 'rename', 'fsync'].join(' ')
    expect(names.filter((name) => order.includes(name)).join(' ')).toBe(order)
    expect(names).not.toContain('fchown')
  })

  it.each([
    ['mode', 'fchmod', { mode: 0o640 }],
    ['owner', 'fchown', { mode: 0o600, uid: 12_345 }],
    ['group', 'fchown', { mode: 0o600, gid: 12_345 }],
  ] as const)('is none where the file system does not keep its %s', async (_, call, attributes) => {
    const directory = await tempDirectory(where)
    const ignored = vi.spyOn(fs, call).mockResolvedValue(undefined)
    onTestFinished(() => ignored.mockRestore())
    await expect(replaceFile(join(directory, 'token'), 'x', attributes)).rejects.toMatchObject({
      kind: 'attributes',
      path: join(directory, 'token'),
    })
    expect(readdirSync(directory)).toEqual([])
  })

  it('closes what it opened, and keeps the first error, where the file system then refuses everything', async () => {
    const directory = await tempDirectory(where)
    const path = join(directory, 'token')
    const refusal = (code: string): Error => Object.assign(new Error(code), { code, syscall: 'fsync' })
    const spies = [
      vi.spyOn(fs, 'fsync').mockRejectedValue(refusal('EIO')),
      vi.spyOn(fs, 'unlink').mockRejectedValue(refusal('EROFS')),
    ]
    onTestFinished(() => spies.forEach((spy) => spy.mockRestore()))
    const descriptors = (): number => readdirSync('/proc/self/fd').length
    const before = descriptors()
    for (let i = 0; i < 5; i += 1)
      await expect(replaceFile(path, 'x', { mode: 0o600 })).rejects.toMatchObject({ code: 'EIO', path })
    expect(descriptors()).toBe(before)
  })

  it('that cannot be made for another reason is an error with the facts of the system', async () => {
    const path = join(await tempDirectory(where), 'x'.repeat(255))
    await expect(replaceFile(path, 'x', { mode: 0o600 })).rejects.toMatchObject({
      kind: 'system',
      code: 'ENAMETOOLONG',
      syscall: 'open',
      path,
    })
  })

  it('is removed, and removing what is not there is no fault', async () => {
    const path = join(await tempDirectory(where), 'token')
    await replaceFile(path, 'x', { mode: 0o600 })
    await removeFile(path)
    await removeFile(path)
    expect(readdirSync(join(path, '..'))).toEqual([])
  })
})

describe('a kill', () => {
  it('after any step leaves the old file or the new one, and what is left over is cleared', async () => {
    const directory = await tempDirectory('memory')
    const path = join(directory, 'token')
    const others = ['notours', 'x0123456789ab'].map((middle) => `.token.${middle}.kyc`)
    others.push('.other.0123456789ab.kyc', '.token.0123456789ab.kyc~')
    for (const name of others) await writeFile(join(directory, name), 'another program’s')
    const seen = new Set<string>()
    const kill = (step: number): { isKilled: boolean; steps: string } => {
      const child = spawnSync(process.execPath, [here('killed-writer.ts'), path, 'new', String(step)])
      return { isKilled: child.signal === 'SIGKILL', steps: child.stdout.toString() }
    }
    for (let step = 0, isKilled = true; isKilled; step += 1) {
      await replaceFile(path, 'old', { mode: 0o640 })
      const killed = kill(step)
      isKilled = killed.isKilled
      expect(isKilled || killed.steps.includes('rename')).toBe(true)
      expect(modeOf(path)).toBe('640')
      expect(['old', 'new']).toContain(contentOf(path))
      expect(contentOf(path)).toBe(killed.steps.includes('rename') ? 'new' : 'old')
      seen.add(`${contentOf(path)} ${readdirSync(directory).length - others.length}`)
      await clearLeftovers(path)
      expect(readdirSync(directory).toSorted()).toEqual([...others, 'token'].toSorted())
    }
    expect(seen).toEqual(new Set(['old 1', 'old 2', 'new 1']))
  })
})

describe.skipIf(!isRoot)('as root', () => {
  it('is made exclusively and private, gets its owner, then its mode, then its content', async () => {
    const directory = await tempDirectory()
    const seen: unknown[] = []
    const end = watchFileCalls((name, args) => {
      if (name === 'open' && typeof args[2] === 'number')
        seen.push([name, Number(args[1]) & EXCLUSIVE, args[2]])
      if (!['fchown', 'fchmod', 'writeFile', 'rename'].includes(name)) return
      const [temporary = ''] = readdirSync(directory)
      const { mode, uid, gid, size } = statSync(join(directory, temporary))
      seen.push([name, (mode & 0o7777).toString(8), uid, gid, size])
    })
    await replaceFile(join(directory, 'token'), 'content', { mode: 0o640, uid: 65533, gid: 12345 })
    end()
    expect(seen).toEqual([
      ['open', EXCLUSIVE, 0o600],
      ['fchown', '600', 0, 0, 0],
      ['fchmod', '600', 65533, 12345, 0],
      ['writeFile', '640', 65533, 12345, 0],
      ['rename', '640', 65533, 12345, 7],
    ])
  })

  it('needs no chown where the directory gives the group', async () => {
    const directory = await tempDirectory()
    await chown(directory, 0, 12345)
    await chmod(directory, 0o2750)
    const names = await recordFileCalls(async () =>
      replaceFile(join(directory, 'token'), 'x', { mode: 0o640, gid: 12345 }),
    )
    expect(names).not.toContain('fchown')
    expect(statSync(join(directory, 'token')).gid).toBe(12345)
  })

  it('syncs the directory after a removal, also of what a crash left', async () => {
    const directory = await tempDirectory()
    const path = join(directory, 'token')
    for (const remove of [removeFile, clearLeftovers]) {
      await writeFile(remove === removeFile ? path : join(directory, '.token.0123456789ab.kyc'), 'x')
      const names = await recordFileCalls(async () => remove(path))
      expect(names.slice(names.indexOf('unlink'))).toContain('fsync')
      expect(readdirSync(directory)).toEqual([])
    }
  })

  it('says to another user what to do where it may not write, or may not give the file away', async () => {
    const directory = await tempDirectory()
    await chmod(directory, 0o755)
    const program = `
      import { replaceFile } from ${JSON.stringify(here('../../src/files/atomic-file.ts'))}
      import { fileSentence } from ${JSON.stringify(here('../../src/host/file-remedy.ts'))}
      process.setgroups([]); process.setgid(65533); process.setuid(65533)
      const foreign = '/dev/shm/kyc-tokend-test-foreign-group'
      for (const [path, gid] of [['${directory}/token', null], [foreign, 12345]]) {
        await replaceFile(path, 'x', { mode: 0o600, gid }).catch((error) => { console.log(fileSentence(error, {})) })
      }`
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const [denied, foreign] = (await text(child.stdout)).split('\n')
    expect(denied).toContain(`the user 65533 may not write in ${directory}`)
    expect(foreign).toContain('kyc-tokend may not give it this owner or group')
    await rm('/dev/shm/kyc-tokend-test-foreign-group', { force: true })
  })
})
