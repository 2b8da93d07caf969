// A directory that becomes a package: files are added with their modes, from the project or from text.
import { chmodSync, copyFileSync, lstatSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'

export type Content = ({ from: string } | { text: string } | { bytes: Buffer }) & { mode?: number }

export interface Tree {
  /** Adds a file; `from` is relative to the project. Mode 0644 where none is given. */
  add(file: string, content: Content): void
  /** The absolute path of a file. */
  path(file: string): string
  /** All files, relative to the root, in order. */
  files(): string[]
  /** As Debian's Installed-Size counts. */
  sizeKib(): number
}

export function createTree(root: string, project: string): Tree {
  const files = (): string[] =>
    readdirSync(root, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => path.relative(root, path.join(entry.parentPath, entry.name)))
      .toSorted()
  return {
    path: (file) => path.join(root, file),
    add(file, content) {
      const target = path.join(root, file)
      mkdirSync(path.dirname(target), { recursive: true })
      if ('from' in content) copyFileSync(path.resolve(project, content.from), target)
      else writeFileSync(target, 'text' in content ? content.text : content.bytes)
      chmodSync(target, content.mode ?? 0o644)
    },
    files,
    sizeKib: () =>
      files().reduce((sum, file) => sum + Math.ceil(lstatSync(path.join(root, file)).size / 1024), 0),
  }
}
