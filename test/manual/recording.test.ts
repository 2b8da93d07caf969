// The picture of README.md: drawn well, of this version, and of what a person does in the first minute.
import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { DOMParser, onErrorStopParsing, type Element } from '@xmldom/xmldom'
import { expect, test } from 'vitest'
import program from '../../package.json' with { type: 'json' }
import { terminalSvg } from '../../systemd/man/terminal-svg.ts'
import { createScreen, textOf } from '../../systemd/man/terminal.ts'

/** Throws where the text is no XML. */
function parse(svg: string): Element {
  return new DOMParser({ onError: onErrorStopParsing }).parseFromString(svg, 'image/svg+xml').documentElement!
}
/** The text of each frame. */
function framesOf(root: Element): string[] {
  return [...root.getElementsByTagName('g')].map((group) =>
    [...group.getElementsByTagName('text')].map(({ textContent }) => textContent).join('\n'),
  )
}

test('a screen shows what a program prints in it, with its colours', async () => {
  const screen = createScreen({ columns: 40, rows: 4 })
  const colours = String.raw`printf '\033[1mbold\033[0m a < b\n\n\033[32m●\033[0m %s' "$key"`
  const running = screen.run(`printf ready; read key; clear; ${colours}`)
  await screen.shows(/ready/)
  running.press('end\n')
  await running.ended
  expect(screen.read().map(textOf)).toEqual(['bold a < b', '', '● end'])
  expect(screen.read()[2]).toEqual([
    { text: '●', look: ['green'] },
    { text: ' end', look: [] },
  ])
})

test('each frame is shown after the one before it, and the last stays', () => {
  const rows = [[{ text: 'a < b & "c"', look: ['bold', 'red'] }], []]
  const svg = terminalSvg(
    [
      { rows, forMs: 1_000 },
      { rows: [], forMs: 3_000 },
    ],
    { columns: 20, label: '1 < 2' },
  )
  const root = parse(svg)
  expect(framesOf(root)).toEqual(['a < b & "c"', ''])
  expect(root.getElementsByTagName('title')[0]?.textContent).toBe('1 < 2')
  expect(svg).toContain('25.00% { visibility: hidden }')
  expect(svg).not.toContain('100.00%')
})

test('the picture shows the first minute of this version, small and without the name of a machine', () => {
  const svg = readFileSync(new URL('../../systemd/man/recording.svg', import.meta.url), 'utf8')
  const root = parse(svg)
  const title = root.getElementsByTagName('title')[0]?.textContent
  expect(title, 'run `node systemd/man/record.ts`').toMatch(`kyc-tokend ${program.version}: `)
  const frames = framesOf(root)
  const seen = [
    /\$ npm start/,
    /● ready[\s\S]*o outage/,
    /\$ \S+\/kyc-tokend token\n\S{40}/,
    /● degraded/,
    /\$ \S+\/kyc-tokend status\n[\s\S]*● degraded[\s\S]*server-error/,
    /● ready/,
  ]
  let at = 0
  for (const what of seen) {
    const found = frames.slice(at).findIndex((frame) => what.test(frame))
    expect(found, String(what)).not.toBe(-1)
    at += found
  }
  expect(svg).not.toContain(hostname())
  expect(Buffer.byteLength(svg)).toBeLessThan(64 * 1024)
})
