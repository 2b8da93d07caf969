// Tests the conversion of the manual's Markdown to man(7), as man(1) shows it.
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { manualPages, roffOf } from '../../systemd/man/pages.ts'
import { lacks } from '../support/lacks.ts'
import { tempDirectory } from '../support/temp-directory.ts'

/** The text on a terminal of 80 columns, and the warnings of groff. */
async function rendered(roff: string): Promise<{ text: string; warnings: string }> {
  const page = join(await tempDirectory(), 'page.1')
  writeFileSync(page, roff)
  const { stdout, stderr } = spawnSync('man', ['--warnings', '--local-file', page], {
    encoding: 'utf8',
    env: { ...process.env, LC_ALL: 'C.UTF-8', MANWIDTH: '80' },
  })
  return { text: stdout, warnings: stderr }
}

async function renderedMarkdown(body: string): Promise<string> {
  const roff = roffOf(`# page(1) -- a page\n\n${body}\n`, { version: '1.0.0', changedAt: new Date(0) })
  const { text, warnings } = await rendered(roff)
  expect(warnings).toBe('')
  return text
}

describe.skipIf(lacks('man'))('a manual page', () => {
  test('has its name, and no warnings; that for the pager fits 80 columns', async () => {
    const pages = manualPages('1.0.0', new Date(0))
    expect(pages.map(({ name, section }) => `${name}(${section})`)).toEqual(
      expect.arrayContaining([
        'kyc-tokend(1)',
        'kyc-tokend.config(5)',
        'kyc-tokend-protocol(7)',
        'kyc-tokend-troubleshooting(7)',
        'kyc-tokend(8)',
      ]),
    )
    for (const page of pages) {
      const { text, warnings } = await rendered(page.text)
      expect(warnings).toBe('')
      expect(text).toMatch(/^NAME\n {7}kyc-tokend\S* - /m)
      if (page.name === 'kyc-tokend-troubleshooting')
        for (const line of text.split('\n')) expect(line.length, line).toBeLessThanOrEqual(80)
    }
  })

  test('shows code as it is typed, tables as definitions, and links by their text', async () => {
    const code = ['.hidden', "'quoted' `x` ~ ^ \\f --flag", '- item'].join('\n')
    const text = await renderedMarkdown(
      [
        `\`\`\`sh\n${code}\n\`\`\``,
        '| a | b |\n| --- | --- |\n| `curl -H @FILE` | sends *it* |\n| -x | y |',
        '| a | b | c |\n| --- | --- | --- |\n| entry-one | 1 | 2 |\n| entry-two | | 3 |',
        'See [page(8)](page.8.md), [alerts](alerts.md) and [RFC](https://example.com/x).',
      ].join('\n\n'),
    )
    expect(text).toContain(code.replaceAll(/^/gm, ' '.repeat(9)))
    expect(text).toContain(`       curl -H @FILE\n              sends it\n\n       -x     y\n`)
    // The columns of a table of three are named, and empty cells left out.
    expect(text).toContain(
      `       entry-one\n              b: 1\n              c: 2\n\n       entry-two\n              c: 3\n`,
    )
    expect(text).toContain('See page(8), alerts and RFC ⟨https://example.com/x⟩.')
  })
})
