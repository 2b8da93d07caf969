// What README.md names is there: files, sections, scripts, drop-ins, versions; and what has no place in it is not.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { readmeText } from './manual.ts'

const project = new URL('../..', import.meta.url).pathname
const text = readmeText()
const { version, scripts } = JSON.parse(readFileSync(join(project, 'package.json'), 'utf8')) as {
  version: string
  scripts: Record<string, string>
}
/** Pieces of code in prose, tables and examples. */
const words = [...text.matchAll(/[^\s`()|]+/g)].map(([word]) => word)
const examples = '/usr/share/doc/kyc-tokend/examples/'
const dropIns = [...text.matchAll(/<!-- drop-in: ([\w.-]+) -->\n+```ini\n([\s\S]*?)```/g)]

describe('what is named is there', () => {
  test('every file of the project', () => {
    const named = words
      .map((word) => word.replace(/[.,;:]+$/, ''))
      .filter((word) =>
        /^(?:src|test|systemd|\.ci)\/|^[\w.-]+\.(?:md|ts)$|^kyc-tokend\.config\.example/.test(word),
      )
    expect(named.length).toBeGreaterThan(10)
    for (const path of named) expect(existsSync(join(project, path)), path).toBe(true)
  })

  test('every file that a link leads to, and every section', () => {
    const sections = [...text.matchAll(/^#+ (.*)$/gm)].map(([, title = '']) => anchorOf(title))
    for (const [, target = ''] of text.matchAll(/\]\(([^)]+)\)/g)) {
      if (target.startsWith('#')) expect(sections).toContain(target.slice(1))
      else expect(existsSync(join(project, target)), target).toBe(true)
    }
  })

  test('every example of the package', () => {
    const named = words.filter((word) => word.startsWith(examples) && !word.endsWith('*'))
    expect(named.length).toBeGreaterThan(1)
    for (const path of named) {
      const name = path.slice(examples.length)
      // Made from this file when the package is built.
      const source =
        name === 'kyc-tokend.config.json' ? 'kyc-tokend.config.example.json' : `systemd/examples/${name}`
      expect(existsSync(join(project, source)), path).toBe(true)
    }
  })

  test('every manual page', () => {
    const named = [...text.matchAll(/`([\w.-]+)\((\d)\)`/g)]
    expect(named.length).toBe(3)
    for (const [, name = '', section = ''] of named)
      expect(existsSync(join(project, 'systemd/man', `${name}.${section}`)), name).toBe(true)
  })

  test('every script, and none is left out', () => {
    const named = [...text.matchAll(/npm run (?:--silent )?([\w:]+)/g)].map(([, name = '']) => name)
    const all = new Set([...named, 'start', 'test'])
    expect([...all].toSorted()).toEqual(Object.keys(scripts).toSorted())
  })

  test('every folder of the picture', () => {
    const picture = /```\n(kyc-tokend\.config[\s\S]*?)\n```/.exec(text)?.[1] ?? ''
    const folders = [...picture.matchAll(/ (\w+)\/ /g)]
    expect(folders.length).toBeGreaterThan(3)
    for (const [, folder = ''] of folders) expect(existsSync(join(project, 'src', folder)), folder).toBe(true)
  })
})

test('the drop-ins are those that the package has as examples', () => {
  expect(dropIns.length).toBeGreaterThan(2)
  for (const [, name = '', lines = ''] of dropIns) {
    const example = readFileSync(join(project, 'systemd/examples', name), 'utf8')
    // An alternative is there as a comment.
    for (const line of lines.trim().split('\n'))
      expect(example.replaceAll(/^#(?=\w+=)/gm, '')).toContain(`${line}\n`)
  }
})

test('the next steps that installing prints are those of this page', () => {
  const postinst = readFileSync(join(project, 'systemd/debian/postinst'), 'utf8')
  const steps = [
    ...(/Next:\n([\s\S]*?)\nSee/.exec(postinst)?.[1] ?? '').matchAll(/^ {2}(.*?)(?: {2,}#.*)?$/gm),
  ]
  const told = steps.map(([, step = '']) => step).filter((step) => !step.startsWith('editor'))
  expect(told.length).toBeGreaterThan(3)
  // A whole command, not the beginning of another.
  for (const step of told)
    expect(text.split(/[\n`]/).map((line) => line.replace('sudo ', ''))).toContain(step)
})

test('every version is that of package.json', () => {
  const changelog = readFileSync(join(project, 'CHANGELOG.md'), 'utf8')
  expect(/^## \[(.*?)\]/m.exec(changelog)?.[1]).toBe(version)
  for (const [, named] of text.matchAll(/kyc-tokend[_-](\d+\.\d+\.\d+)/g)) expect(named).toBe(version)
})

test('every example in JSON is JSON', () => {
  for (const [, code = ''] of text.matchAll(/```json\n([\s\S]*?)```/g))
    expect(() => void JSON.parse(code)).not.toThrow()
})

test('no path of a machine and no host of a registry is in it', () => {
  expect(text).not.toMatch(/\/(?:home|root|work|tmp|Users)\/|registry\.|npmjs/)
})

/** As GitHub makes it of a heading. */
function anchorOf(title: string): string {
  return title
    .toLowerCase()
    .replaceAll(/[^\w\s-]/g, '')
    .replaceAll(' ', '-')
}
