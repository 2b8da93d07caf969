import { spawnSync } from 'node:child_process'
import { chownSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { createJudgedFile } from '../../src/config/judged.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const bytes = Buffer.from('{ "baseUrl": "https://api.example.com" }')

async function keptFile(): Promise<string> {
  const path = join(await tempDirectory(), 'judged')
  const judged = createJudgedFile(path)
  judged.remember(bytes)
  await judged.keep()
  return path
}

test('what was judged good is known at the next start, and nothing else is', async () => {
  const judged = createJudgedFile(await keptFile())
  expect(judged.isKnownGood(bytes)).toBe(true)
  expect(judged.isKnownGood(Buffer.from('{}'))).toBe(false)
})

test('where nothing can be kept nothing is known, and nobody is told', async () => {
  const judged = createJudgedFile(join(await tempDirectory(), 'none', 'judged'))
  judged.remember(bytes)
  await judged.keep()
  expect(judged.isKnownGood(bytes)).toBe(false)
})

test('a FIFO in its place keeps nobody waiting', async () => {
  const path = join(await tempDirectory(), 'judged')
  spawnSync('mkfifo', [path])
  expect(createJudgedFile(path).isKnownGood(bytes)).toBe(false)
})

test.skipIf(process.getuid?.() !== 0)("another user's file vouches for nothing", async () => {
  const path = await keptFile()
  chownSync(path, 4242, 4242)
  expect(createJudgedFile(path).isKnownGood(bytes)).toBe(false)
})
