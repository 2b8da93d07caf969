// Tests the renderer of the picture in README.md, and that the picture shows what it is for.
import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { expect, test } from 'vitest'
import { terminalSvg } from '../../systemd/man/terminal-svg.ts'

function textsOf(svg: string): string[] {
  return [...svg.matchAll(/<text[^>]*>(.*?)<\/text>/g)].map(([, text = '']) => text)
}

test('a line appears at its time, escaped, in its colours', () => {
  const svg = terminalSvg([
    { text: 'a < b && c', atMs: 0 },
    { text: '\u001b[32m●\u001b[0m \u001b[1mready\u001b[31m!', atMs: 250 },
  ])
  expect(textsOf(svg)).toEqual([
    'a &lt; b &amp;&amp; c',
    '<tspan class="green">●</tspan> <tspan class="bold">ready</tspan><tspan class="red">!</tspan>',
  ])
  expect(svg).toContain('style="animation-delay:250ms"')
})

test('a long line is broken as a terminal breaks it, and colours do not count', () => {
  const rows = textsOf(
    terminalSvg([{ text: `\u001b[1m${'x'.repeat(112)}\u001b[0m${'y'.repeat(113)}`, atMs: 0 }]),
  )
  expect(rows).toEqual([`<tspan class="bold">${'x'.repeat(112)}</tspan>`, 'y'.repeat(112), 'y'])
})

test('the picture shows the start, the outage and the status, small and without the name of a machine', () => {
  const svg = readFileSync(new URL('../../systemd/man/recording.svg', import.meta.url), 'utf8')
  const text = textsOf(svg)
    .map((row) => row.replaceAll(/<[^>]*>/g, ''))
    .join('\n')
  expect(text).toMatch(
    /\$ npm start\n[\s\S]*token 2 [\s\S]*\$ curl -X PUT -d outage [\s\S]*● degraded: [\s\S]*server-error/,
  )
  expect(svg).not.toContain(hostname())
  expect(Buffer.byteLength(svg)).toBeLessThan(16 * 1024)
})

test('the demo prints the lines that the recording runs', () => {
  const source = readFileSync(new URL('../../src/commands/demo.ts', import.meta.url), 'utf8')
  const record = readFileSync(new URL('../../systemd/man/record.ts', import.meta.url), 'utf8')
  const labels = [...record.matchAll(/commandAfter\('(.+?)'\)/g)].map(([, label = '']) => label)
  expect(labels).toHaveLength(2)
  for (const label of labels) expect(source).toContain(`\n  ${label} `)
})
