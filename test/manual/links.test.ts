// Checks that the files, sections, scripts, drop-ins and versions that the manual names exist.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { withShippedLinks } from '../../systemd/build/shipped-links.ts'
import { bare, dropIns, manualText, pages, PROJECT, tableRows } from './manual.ts'

const text = manualText()
const { version, scripts } = JSON.parse(readFileSync(join(PROJECT, 'package.json'), 'utf8')) as {
  version: string
  scripts: Record<string, string>
}
/** Pieces of code in prose, tables and examples. */
const words = [...text.matchAll(/[^\s`()|[\]]+/g)].map(([word]) => word)

describe('the manual names what exists', () => {
  test('every file of the project', () => {
    const named = words
      .map((word) => word.replace(/[.,;:]+$/, ''))
      .filter((word) => /^(?:src|test|systemd|\.ci)\/[\w./-]+$|^kyc-tokend\.config\.example/.test(word))
    expect(named.length).toBeGreaterThan(20)
    for (const path of named) expect(existsSync(join(PROJECT, path)), path).toBe(true)
  })

  test.each(pages())('every file and section that $path links to', ({ path, text: page }) => {
    for (const [, target = ''] of page.matchAll(/\]\(([^)\s]+)\)/g)) {
      if (target.startsWith('https:')) continue
      const [file = '', section] = target.split('#')
      const linked = file === '' ? path : join(dirname(path), file)
      expect(existsSync(join(PROJECT, linked)), target).toBe(true)
      if (section !== undefined) expect(sectionsOf(linked), target).toContain(section)
    }
  })

  test('every page, in README.md, and every manual page', () => {
    const list = readFileSync(join(PROJECT, 'README.md'), 'utf8')
    for (const { path } of pages()) if (path.startsWith('systemd/man/')) expect(list).toContain(`](${path})`)
    for (const [page, name, section] of text.matchAll(/\b(kyc-tokend[\w.-]*)\((\d)\)/g))
      expect(existsSync(join(PROJECT, `systemd/man/${name}.${section}.md`)), page).toBe(true)
  })

  test('every script', () => {
    for (const [, name] of text.matchAll(/npm run (?:--silent )?([\w:]+)/g))
      expect(Object.keys(scripts)).toContain(name)
  })

  test('every folder of src, and all of them', () => {
    const listed = tableRows('folders').map(([path]) => bare(path).replace(/\/$/, ''))
    const there = readdirSync(join(PROJECT, 'src'), { withFileTypes: true })
    const folders = there.filter((entry) => entry.isDirectory()).map(({ name }) => name)
    expect(listed).toEqual(expect.arrayContaining(folders))
    expect(there.map(({ name }) => name)).toEqual(expect.arrayContaining(listed))
  })
})

test('the drop-ins are those that the package has as examples', () => {
  expect(dropIns().length).toBeGreaterThan(2)
  for (const { name, code } of dropIns()) {
    const example = readFileSync(join(PROJECT, 'systemd/examples', name), 'utf8')
    // The example has an alternative as a comment.
    for (const line of code.split('\n')) expect(example.replaceAll(/^#(?=\w+=)/gm, '')).toContain(`${line}\n`)
  }
})

test('every version is that of package.json', () => {
  const released = version.replace('-dev', '')
  const changelog = readFileSync(join(PROJECT, 'CHANGELOG.md'), 'utf8')
  expect(/^## \[?(\d[\d.]*)/m.exec(changelog)?.[1]).toBe(released)
  for (const [, named] of text.matchAll(/kyc-tokend[_-](\d+\.\d+\.\d+)/g)) expect(named).toBe(released)
})

test('in the package a link to another page stays, and one to what is not shipped becomes its text', () => {
  const page = '[a](systemd/man/programs.md#x), [b](src/README.md), [c](https://x.y)\n'
  expect(withShippedLinks('README.md', page)).toBe('[a](manual/programs.md#x), b, [c](https://x.y)\n')
  const other = '[a](../../SECURITY.md), [b](fleet.md), [c](#x)'
  expect(withShippedLinks('systemd/man/programs.md', other)).toBe(other.replace('../../', '../'))
})

/** The anchors that GitHub gives the headings of a page. */
function sectionsOf(path: string): string[] {
  const titles = readFileSync(join(PROJECT, path), 'utf8').match(/(?<=^#+ ).*$/gm) ?? []
  return titles.map((title) =>
    title
      .toLowerCase()
      .replaceAll(/[^\w\s-]/g, '')
      .replaceAll(' ', '-'),
  )
}
