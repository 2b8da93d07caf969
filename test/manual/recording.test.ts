// The picture of README.md: drawn well, of this version, and of what a person does in the first minute.
import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { DOMParser, onErrorStopParsing, type Element } from '@xmldom/xmldom'
import { expect, test } from 'vitest'
import program from '../../package.json' with { type: 'json' }

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
