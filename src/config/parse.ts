// Makes a document of the bytes of a configuration file: JSON or YAML by cosmiconfig, never executable.
import { isUtf8 } from 'node:buffer'
import { basename, extname } from 'node:path'

import { findJsonFault } from './json-fault.ts'

/** File names that are looked for, in this order. */
export const FILE_NAMES = ['kyc-tokend.config.json', 'kyc-tokend.config.yaml', 'kyc-tokend.config.yml']

export type Parsed =
  | { readonly kind: 'document'; readonly document: unknown }
  | { readonly kind: 'faulty'; readonly sentence: string }

/** What the loaders throw: a sentence that goes on from the file's name and quotes nothing of the file. */
class Unusable extends Error {
  override readonly name = 'Unusable'
}

/** The document in these bytes. `trusted` bytes were judged good before: they are JSON, and need no cosmiconfig. */
export async function parseConfig(
  file: string,
  bytes: Buffer,
  options: { trusted: boolean },
): Promise<Parsed> {
  if (!isUtf8(bytes)) {
    const isUtf16 = bytes[0] === 0xff || bytes[0] === 0xfe
    return faulty(`is not ${isUtf16 ? 'UTF-8 but UTF-16' : 'valid UTF-8'}: save it as UTF-8`)
  }
  const text = bytes.toString('utf8')
  try {
    if (options.trusted) return { kind: 'document', document: JSON.parse(withoutMark(text)) as unknown }
    return await byCosmiconfig(file, text)
  } catch (error) {
    if (error instanceof Unusable) return faulty(error.message)
    throw error
  }
}

/** Whether the file is JSON by its name. */
export function isJsonFile(file: string): boolean {
  return extname(file) === '.json'
}

/**
 * cosmiconfig reads the file once more, by its name; its loaders take the text only if it is the one that was
 * judged. They wrap the document, because cosmiconfig would follow a `$import` in it to other files.
 */
async function byCosmiconfig(file: string, text: string): Promise<Parsed> {
  // A bundle has the default export of a CommonJS library and none of its names.
  const { cosmiconfigSync, defaultLoadersSync } = (await import('cosmiconfig')).default
  const as = (parse: (content: string) => unknown) => (path: string, content: string) => {
    if (path === file && content !== text) throw new Unusable('was changed while it was read: try again')
    return { document: parse(withoutMark(content)) }
  }
  const never = (): never => {
    throw new Unusable('must be named *.json, *.yaml or *.yml: rename it')
  }
  const loaders = {
    '.json': as(parseJson),
    '.yaml': as((content) => parseYaml(content, defaultLoadersSync['.yaml'])),
    '.yml': as((content) => parseYaml(content, defaultLoadersSync['.yaml'])),
    ...Object.fromEntries(
      ['.js', '.cjs', '.mjs', '.ts', '.cts', '.mts', 'noExt', 'default'].map((of) => [of, never]),
    ),
  }
  const explorer = awayFromWorkingDirectory(() =>
    cosmiconfigSync('kyc-tokend', {
      searchPlaces: FILE_NAMES,
      searchStrategy: 'none',
      cache: false,
      loaders,
    }),
  )
  const found = explorer.load(file) as { config?: { document: unknown }; isEmpty?: boolean } | null
  if (found?.config !== undefined) return { kind: 'document', document: found.config.document }
  if (basename(file).startsWith('package.')) return never()
  return faulty('is empty: begin with kyc-tokend.config.example.json')
}

/**
 * When it is made, cosmiconfig looks for settings of its own in the working directory, and would run a
 * `.config/config.js` there. In `/` only root can have put something. A working directory that is gone or may not be
 * entered any more is left for good.
 */
function awayFromWorkingDirectory<T>(act: () => T): T {
  const home = workingDirectory()
  process.chdir('/')
  try {
    return act()
  } finally {
    comeBack(home)
  }
}

function workingDirectory(): string {
  try {
    return process.cwd()
  } catch {
    return '/'
  }
}

function comeBack(directory: string): void {
  try {
    process.chdir(directory)
  } catch {
    process.chdir('/')
  }
}

function parseJson(text: string): unknown {
  const fault = findJsonFault(text)
  if (fault === undefined) return JSON.parse(text)
  throw new Unusable(`is not JSON at line ${fault.line}, column ${fault.column}: ${fault.sentence}`)
}

type YamlError = { reason?: unknown; mark?: { line?: unknown; column?: unknown } | null }

function parseYaml(text: string, load: (path: string, content: string) => unknown): unknown {
  try {
    return load('', text)
  } catch (error) {
    const { reason, mark } = error as YamlError
    const place =
      typeof mark?.line === 'number' && typeof mark.column === 'number'
        ? ` at line ${mark.line + 1}, column ${mark.column + 1}`
        : ''
    // Words alone are the parser's own; whatever else a reason holds may be quoted from the file.
    const why =
      typeof reason === 'string' && /^[a-z ,-]+$/.test(reason) ? reason : 'it cannot be read from there on'
    throw new Unusable(`is not YAML${place}: ${why}`)
  }
}

/** A byte order mark in front of UTF-8 says nothing and is allowed. */
function withoutMark(text: string): string {
  return text.startsWith('\uFEFF') ? text.slice(1) : text
}

function faulty(sentence: string): Parsed {
  return { kind: 'faulty', sentence }
}
