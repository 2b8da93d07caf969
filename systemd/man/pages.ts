// The pages for man(1), made from the Markdown pages beside this file whose names end in a section's number.
import { readdirSync, readFileSync } from 'node:fs'
import type { Paragraph, PhrasingContent, Root, RootContent, Table } from 'mdast'
import { remark } from 'remark'
import remarkGfm from 'remark-gfm'
import remarkMan from 'remark-man'

export interface ManualPage {
  readonly name: string
  readonly section: number
  /** man(7). */
  readonly text: string
}

const PAGE = /^(.+)\.([1578])\.md$/

/** All of them, for this version as it was on that day. */
export function manualPages(version: string, changedAt: Date): ManualPage[] {
  return readdirSync(import.meta.dirname)
    .flatMap((file) => [...file.matchAll(new RegExp(PAGE, 'g'))])
    .map(([file, name = '', section = '']) => ({
      name,
      section: Number(section),
      text: roffOf(readFileSync(new URL(file, import.meta.url), 'utf8'), { version, changedAt }),
    }))
}

/** A page of Markdown as man(7). Its first heading is `# name(section) -- summary`. */
export function roffOf(
  markdown: string,
  { version, changedAt }: { version: string; changedAt: Date },
): string {
  const page = remark()
    .use(remarkGfm)
    .use(() => fitForTerminal)
    .use(remarkMan, {
      version: `kyc-tokend ${version}`,
      // The converter prints month and year of the local time zone.
      date: new Date(changedAt.getUTCFullYear(), changedAt.getUTCMonth(), 15),
    })
  return finish(String(page.processSync(markdown)))
}

/** Replaces tables by definition lists, and links between pages by their text: neither fits a terminal. */
function fitForTerminal(tree: Root): void {
  tree.children = tree.children.map((node) => {
    const fit = node.type === 'table' ? definitionsOf(node) : node
    removeLinks(fit)
    return fit
  })
}

function removeLinks(node: RootContent): void {
  if (!('children' in node)) return
  node.children = (node.children as RootContent[]).flatMap((child) => {
    removeLinks(child)
    if (child.type !== 'link' || child.url.startsWith('https:')) return [child]
    const isPage = /\.[1578]\.md/.test(child.url)
    return [{ type: isPage ? ('strong' as const) : ('emphasis' as const), children: child.children }]
  }) as typeof node.children
}

/** A row becomes a list item: its first cell, below it the others, with their heads if they are several. */
function definitionsOf({ children: [head, ...rows] }: Table): RootContent {
  const heads = (head?.children ?? []).map((cell) => cell.children)
  const items = rows.map(({ children: [term, ...cells] }) => {
    const lines = cells.flatMap((cell, index): PhrasingContent[] => {
      if (cell.children.length === 0) return []
      const label =
        cells.length > 1 ? [...(heads[index + 1] ?? []), { type: 'text' as const, value: ': ' }] : []
      return [{ type: 'break' }, ...label, ...cell.children]
    })
    const paragraph: Paragraph = {
      type: 'paragraph',
      children: [{ type: 'strong', children: term?.children ?? [] }, ...lines],
    }
    return { type: 'listItem' as const, children: [paragraph] }
  })
  return { type: 'list', ordered: false, children: items }
}

/** Adds to the converter's text: definition lists, characters as they are typed, no filling of lines. */
function finish(roff: string): string {
  let isLiteral = false
  const lines = roff.split('\n').map((line) => {
    if (line === '.nf' || line === '.fi') isLiteral = line === '.nf'
    else if (isLiteral || !/^\.[A-Za-z]/.test(line)) return asTyped(line).replace(/^\./, String.raw`\&.`)
    else if (/^\.S[HS]/.test(line)) return asTyped(line)
    return line
  })
  return lines
    .join('\n')
    .replace('\n', '\n.nh\n.ad l\n')
    .replaceAll(/^\.IP \\\(bu 4\n(\\fB.*)\n\.br\n+/gm, '.TP\n$1\n')
    .replaceAll(/^\.RS 0\n/gm, '')
    .replaceAll(/^\.RE 0\n/gm, '')
    .replaceAll(/\n{2,}/g, '\n')
}

const TYPED: Readonly<Record<string, string>> = {
  '-': String.raw`\-`,
  "'": String.raw`\(aq`,
  '`': String.raw`\(ga`,
  '^': String.raw`\(ha`,
  '~': String.raw`\(ti`,
}

/** Text in which groff changes no character; its own escapes stay. */
function asTyped(line: string): string {
  return line.replaceAll(/\\\[[^\]]*\]|\\f.|\\\(..|[-'`^~]/g, (found) => TYPED[found] ?? found)
}
