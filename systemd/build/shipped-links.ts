// The links of a page as they hold in the package's directory of documents.
import path from 'node:path'

/** Where the package has a page of the project, below its directory of documents; undefined: it has it not. */
export function shippedPath(page: string): string | undefined {
  if (/^systemd\/man\/[\w.-]+\.md$/.test(page)) return `manual/${path.basename(page)}`
  return ['CHANGELOG.md', 'README.md', 'SECURITY.md'].includes(page) ? page : undefined
}

/** The text of the page at this path of the project. A link to what is not shipped becomes its text; pictures go. */
export function withShippedLinks(page: string, text: string): string {
  const here = path.dirname(shippedPath(page) ?? page)
  return text
    .replaceAll(/^!\[[^\]]*\]\([^)]*\)\n\n/gm, '')
    .replaceAll(/\[([^\]]+)\]\(([^)\s]+)\)/g, (link, words: string, target: string) => {
      if (/^(?:https?:|#)/.test(target)) return link
      const [file = '', section] = target.split('#')
      const shipped = shippedPath(path.join(path.dirname(page), file))
      if (shipped === undefined) return words
      return `[${words}](${path.relative(here, shipped)}${section === undefined ? '' : `#${section}`})`
    })
}
