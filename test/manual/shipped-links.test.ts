// The links of the pages in the package lead to what the package has.
import path from 'node:path'
import { expect, test } from 'vitest'
import { shippedPath, withShippedLinks } from '../../systemd/build/shipped-links.ts'
import { pages } from './manual.ts'

test('a link to another page stays, one to what is not shipped becomes its text', () => {
  const text =
    '![x](systemd/man/recording.svg)\n\n[a](systemd/man/node.md#x), [b](src/README.md), [c](https://x.y)\n'
  expect(withShippedLinks('README.md', text)).toBe('[a](manual/node.md#x), b, [c](https://x.y)\n')
  expect(withShippedLinks('systemd/man/node.md', '[a](../../SECURITY.md), [b](fleet.md), [c](#x)')).toBe(
    '[a](../SECURITY.md), [b](fleet.md), [c](#x)',
  )
})

const shipped = pages().filter((page) => shippedPath(page.path) !== undefined)

test.each(shipped)('every link of $path leads to a page of the package', ({ path: page, text }) => {
  const there = new Set([...shipped.map((each) => shippedPath(each.path)), 'CHANGELOG.md'])
  const here = path.dirname(shippedPath(page)!)
  const targets = [...withShippedLinks(page, text).matchAll(/\]\(([^)\s#]+)[^)]*\)/g)].map(
    ([, target]) => target!,
  )
  const missing = targets.filter(
    (target) => !target.startsWith('https:') && !there.has(path.join(here, target)),
  )
  expect(missing).toEqual([])
})
