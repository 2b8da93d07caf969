import { execFileSync } from 'node:child_process'
import { createHash, createHmac } from 'node:crypto'
import { assert, property, string } from 'fast-check'
import { expect, test } from 'vitest'
import { hmacSha256, randomHex, sha256 } from '../../src/lib/openssl.ts'
import { bundledModule, installKoffiWithoutFunctions } from '../support/bundled-module.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const text = string({ unit: 'binary', maxLength: 5_000 })
const key = string({ unit: 'binary', minLength: 1, maxLength: 200 })

test('SHA-256 and HMAC are those of node:crypto', () => {
  expect(sha256('')).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')
  assert(property(text, (of) => sha256(of) === createHash('sha256').update(of).digest('hex')))
  assert(
    property(key, text, (by, of) => hmacSha256(by, of) === createHmac('sha256', by).update(of).digest('hex')),
  )
})

test('random bytes are as many as were asked for, and other ones each time', () => {
  expect(randomHex(3)).toMatch(/^[0-9a-f]{6}$/)
  expect(new Set(Array.from({ length: 1_000 }, () => randomHex(16)))).toHaveLength(1_000)
})

const ENTRY = `
import { hmacSha256, randomHex, sha256 } from './openssl.ts'
console.log(sha256('one'), hmacSha256('one', 'two'), randomHex(4).length)
console.log(process.moduleLoadList.includes('NativeModule crypto') ? 'with' : 'without', 'node:crypto')`

const answersOf = (program: string): string => execFileSync(process.execPath, [program], { encoding: 'utf8' })

const expected = [
  createHash('sha256').update('one').digest('hex'),
  createHmac('sha256', 'one').update('two').digest('hex'),
  8,
].join(' ')

test('with koffi the modules of node:crypto are not loaded', async () => {
  const program = await bundledModule(await tempDirectory(), { entry: ENTRY, packages: ['@koromix'] })
  expect(answersOf(program)).toBe(`${expected}\nwithout node:crypto\n`)
})

test('without koffi, and where Node shows no functions of OpenSSL, they give the same', async () => {
  const program = await bundledModule(await tempDirectory(), { entry: ENTRY })
  expect(answersOf(program)).toBe(`${expected}\nwith node:crypto\n`)
  installKoffiWithoutFunctions(program)
  expect(answersOf(program)).toBe(`${expected}\nwith node:crypto\n`)
})
