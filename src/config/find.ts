// Finds the configuration file and makes a document of it, by cosmiconfig: JSON or YAML, never executable.
import { isUtf8 } from 'node:buffer'
import { existsSync, type Stats } from 'node:fs'
import { basename, join } from 'node:path'

import { errorCode, errorMessage, fallbackOnSystemError } from '../lib/error.ts'
import { findJsonFault } from './json-fault.ts'
import { readFile } from './read-file.ts'

/** File names that are searched for, in this order. */
export const FILE_NAMES = ['kyc-tokend.config.json', 'kyc-tokend.config.yaml', 'kyc-tokend.config.yml']

/** The example, in a checkout and as the Debian package has it. */
export const EXAMPLE =
  'kyc-tokend.config.example.json (of the package: /usr/share/doc/kyc-tokend/examples/kyc-tokend.config.json)'

export type Found =
  | {
      readonly kind: 'found'
      readonly file: string
      readonly stats: Stats
      readonly document: unknown
      /** Further configuration files that were searched for, and are there, and are not read. */
      readonly others: readonly string[]
    }
  | { readonly kind: 'absent'; readonly searched: readonly string[] }
  /** The sentence goes on from the file's name, quotes nothing of the file and ends with the remedy. */
  | { readonly kind: 'faulty'; readonly file: string; readonly sentence: string }

/** Thrown by the loaders: a sentence as in `Found`. */
class UnusableFile extends Error {}

type From = { file: string } | { directories: readonly string[] }

/** The configuration at this path, or else the first one in these directories. */
export async function findConfig(from: From): Promise<Found> {
  const found = await find(from)
  // One that was being replaced is whole by now.
  return found.kind === 'faulty' && found.sentence === CHANGED ? find(from) : found
}

async function find(from: From): Promise<Found> {
  const searched =
    'file' in from
      ? [from.file]
      : from.directories.flatMap((directory) => FILE_NAMES.map((name) => join(directory, name)))
  const present = searched.filter((path) => existsSync(path))
  // A directory that may not be entered hides its files.
  const [file = searched.find((path) => readFile(path).kind === 'unreadable')] = present
  if (file === undefined) return { kind: 'absent', searched }
  const faulty = (sentence: string): Found => ({ kind: 'faulty', file, sentence })
  // Before cosmiconfig, which opens what it finds, and would wait at a FIFO.
  const reading = readFile(file)
  if (reading.kind === 'unreadable') return faulty(reading.sentence)
  if (reading.kind === 'absent') return faulty(CHANGED)
  // cosmiconfig would run a *.js, and take one property of a package.json.
  if (!/^(?!package\.).*\.(?:json|ya?ml)$/.test(basename(file)))
    return faulty('must be named *.json, *.yaml or *.yml: rename it')
  try {
    const document = await parse(file, textOf(reading.bytes))
    const others = present.filter((path) => path !== file)
    return { kind: 'found', file, stats: reading.stats, document, others }
  } catch (error) {
    if (error instanceof UnusableFile) return faulty(error.message)
    const code = errorCode(error)
    if (code === undefined || code.startsWith('ERR_')) throw error
    return faulty(code === 'ENOENT' ? CHANGED : `cannot be read (${errorMessage(error)}): try again`)
  }
}

const CHANGED = 'was changed while it was read: try again'

/**
 * The library. A part of it asks for the home directory when it is loaded, and would end the program of a user who has
 * neither HOME nor an entry in passwd; the answer is not used.
 */
async function loadCosmiconfig() {
  const { HOME } = process.env
  if (!HOME) process.env['HOME'] = '/'
  try {
    // A bundle has the default export of a CommonJS library and none of its names.
    return (await import('cosmiconfig')).default
  } finally {
    if (HOME === undefined) delete process.env['HOME']
    else process.env['HOME'] = HOME
  }
}

/** Loads the libraries, also the one that reads YAML, for a process that may not read the program's files later. */
export async function loadParsers(): Promise<void> {
  const { defaultLoadersSync } = await loadCosmiconfig()
  defaultLoadersSync['.yaml']('', 'a: 1')
}

/**
 * The loaders parse this text, which was read with owner and mode by one descriptor: what is checked is what is used.
 * The document is wrapped, because cosmiconfig would follow a `$import` in it to other files.
 */
async function parse(file: string, text: string): Promise<unknown> {
  const { cosmiconfigSync, defaultLoadersSync } = await loadCosmiconfig()
  const yaml = () => ({ document: parseYaml(text, defaultLoadersSync['.yaml']) })
  const loaders = { '.json': () => ({ document: parseJson(text) }), '.yaml': yaml, '.yml': yaml }
  const explorer = awayFromWorkingDirectory(() => cosmiconfigSync('kyc-tokend', { cache: false, loaders }))
  const { config } = explorer.load(file) as { config?: { document: unknown } }
  if (config === undefined) throw new UnusableFile(CHANGED)
  return config.document
}

/**
 * cosmiconfig searches the working directory for settings of its own when an explorer is made, and would run a
 * `.config/config.js` there. In `/` only root can have put one. A working directory that is gone or may not be entered
 * any more is left for good.
 */
function awayFromWorkingDirectory<T>(act: () => T): T {
  const directory = workingDirectory()
  process.chdir('/')
  try {
    return act()
  } finally {
    try {
      process.chdir(directory)
    } catch (error) {
      // With the effective user's rights: `setup` and `check` of root act as the daemon's user here.
      fallbackOnSystemError(undefined)(error)
    }
  }
}

/** The working directory; `/` where it is gone. */
export function workingDirectory(): string {
  try {
    return process.cwd()
  } catch (error) {
    return fallbackOnSystemError('/')(error)
  }
}

/** The text without a byte order mark, which says nothing in UTF-8 and is allowed. */
function textOf(bytes: Buffer): string {
  if (!isUtf8(bytes)) {
    const isUtf16 = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff)
    throw new UnusableFile(`is not ${isUtf16 ? 'UTF-8 but UTF-16' : 'valid UTF-8'}: save it as UTF-8`)
  }
  const text = bytes.toString('utf8').replace(/^\uFEFF/, '')
  if (text.trim() === '') throw new UnusableFile(`is empty: begin with ${EXAMPLE}`)
  return text
}

function parseJson(text: string): unknown {
  const fault = findJsonFault(text)
  if (fault !== undefined)
    throw new UnusableFile(`is not JSON at line ${fault.line}, column ${fault.column}: ${fault.sentence}`)
  try {
    return JSON.parse(text)
  } catch {
    // Its message quotes the text.
    throw new UnusableFile('is not JSON: write it again, with an editor that checks JSON')
  }
}

type YamlError = { reason?: unknown; mark?: { line?: unknown; column?: unknown } | null }

function parseYaml(text: string, load: (path: string, content: string) => unknown): unknown {
  try {
    return load('', text)
  } catch (error) {
    const { reason, mark } = error as YamlError
    const where =
      typeof mark?.line === 'number' && typeof mark.column === 'number'
        ? ` at line ${mark.line + 1}, column ${mark.column + 1}`
        : ''
    // Words alone are the parser's own; anything else in a reason may be quoted from the file.
    const why =
      typeof reason === 'string' && /^[a-z ,-]+$/.test(reason) ? reason : 'it cannot be read from there on'
    throw new UnusableFile(`is not YAML${where}: ${why}`)
  }
}
