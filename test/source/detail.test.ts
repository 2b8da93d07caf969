import { describe, expect, test } from 'vitest'
import { bare, oneLine } from '../../src/source/detail.ts'

const plain = (text: string): string => oneLine(text, [])

describe('the line', () => {
  test('is as it came where it fits, and is cut where it is one character longer', () => {
    const fits = 'x'.repeat(200)
    expect(plain(fits)).toBe(fits)
    expect(plain(`${fits}y`)).toBe(`${'x'.repeat(199)}…`)
  })

  test('is never cut in the middle of a character', () => {
    const head = 'x'.repeat(198)
    expect(plain(`${head}😀😀`)).toBe(`${head}…`)
    expect(plain(`${head.slice(1)}😀😀`)).toBe(`${head.slice(1)}😀…`)
    expect(plain(`\u{1F600}${head}yz`)).toBe(`\u{1F600}${head.slice(1)}…`)
  })
})

describe('what looks like a token', () => {
  const hidden: [string, string][] = [
    ['bearer abc', '[secret]'],
    ['bearer \0 abc', '[secret]'],
    ['a BEARER  abc/d-e+f=, and more', 'a [secret] and more'],
    ['Bearer one and Bearer two', '[secret] and [secret]'],
    ['eyJhbGci', '[secret]'],
    ['eyJ_-ab.eyJzdWI.sig-_nature and eyJhbGci.', '[secret] and [secret]'],
    ['"eyJhbGci.eyJz.x"', '"[secret]"'],
  ]
  test.each(hidden)('is hidden in %s', (text, shown) => {
    expect(plain(text)).toBe(shown)
  })

  const shown = ['forbearer abc', 'bearer', 'the bearer', 'bearerabc', 'eyJab', 'heyJude12', 'eyJ a b c d']
  test.each(shown)('is not what is in %s', (text) => {
    expect(plain(text)).toBe(text)
  })
})

describe('secrets', () => {
  test('are hidden, and an empty one hides nothing', () => {
    expect(oneLine('no s3cret here', ['', 's3cret'])).toBe('no [secret] here')
    expect(oneLine('no words here', ['', 's3cret'])).toBe('no words here')
  })

  test('that are in it in other letters or in pieces leave nothing of it', () => {
    for (const text of ['no S3CRET here', 'no s3c ret here', 'no s3c\n\tret here', 'S 3 c R e T']) {
      expect(oneLine(text, ['other', 's3cret']), text).toBe('')
    }
    expect(oneLine('it says words', ['Sw ORD'])).toBe('')
  })

  test('are hidden before it is cut', () => {
    const text = `${'x'.repeat(196)}s3cret`
    expect(oneLine(text, ['s3cret'])).toBe(`${'x'.repeat(196)}[se…`)
  })
})

test('a comparison knows neither case nor white space', () => {
  expect(bare(' Your\tACCOUNT \n is  ')).toBe('youraccountis')
})
