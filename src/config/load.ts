// Loads the configuration: finds its file (JSON or YAML, never code), and reports all its faults at once.
import { isUtf8 } from 'node:buffer'
import type { Stats } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, extname, join, resolve } from 'node:path'
import { accountOfConfig } from '../host/account.ts'
import { configDirectories, programName, SYSTEM_CONFIG_DIRECTORY } from '../host/paths.ts'
import { CONTROL_CHARACTER } from '../lib/display-text.ts'
import { withSystemFallback } from '../lib/error.ts'
import type { Hidden } from '../host/finding.ts'
import { hideInStacks } from '../lib/internal-fault.ts'
import { revealAll, type Config } from './config.ts'
import { ConfigError, createDiagnostics, printable, type Diagnostics } from './issues.ts'
import { findJsonFault } from './json-fault.ts'
import { readFile, type Present, type StagedFiles } from './read-file.ts'
import { resolveConfig, resolvePlan } from './resolve.ts'
import { validateDocument, type Settings } from './schema.ts'

export interface LoadOptions {
  /** `--config`. */
  readonly configPath?: string | undefined
  readonly env: NodeJS.ProcessEnv
  /** systemd runs the daemon and not this process: a secret that only the daemon sees is a warning then. */
  readonly isElsewhere?: boolean | undefined
  /** The runtime directory of a daemon that runs, instead of the configured one: its outputs stay there. */
  readonly runtimeDirectory?: string | undefined
  readonly staged?: StagedFiles | undefined
}

export type Inspection = Awaited<ReturnType<typeof inspectConfig>>

/**
 * The configuration, with its files, owners, modes and secrets as they are now. Throws ConfigError (78) and
 * FileError if the disk is late.
 */
export async function loadConfig(options: LoadOptions): Promise<Config> {
  const { config, faults, file } = await inspectConfig(options)
  if (config === undefined) throw new ConfigError(faults, file)
  return config
}

/** The part that needs no secret and no other file; without a path, all defaults. Throws ConfigError (78). */
export async function loadPlan({ configPath, env }: { configPath: unknown; env: NodeJS.ProcessEnv }) {
  const diagnostics = createDiagnostics()
  const { file, settings } =
    typeof configPath === 'string'
      ? await readSettings({ configPath, env }, diagnostics)
      : { file: undefined, settings: validateDocument(DEFAULTS).settings }
  const plan = settings && resolvePlan(settings, diagnostics)
  if (plan === undefined || diagnostics.faults.length > 0) throw new ConfigError(diagnostics.faults, file)
  return { ...plan, file, isShared: settings!.share !== null }
}

/** A document that leaves everything to the defaults. */
const DEFAULTS = { baseUrl: 'https://api.example.com', credentials: { apiKey: 'key', apiSecret: 'secret' } }

/**
 * Reports everything about a configuration. If there are faults, `config` is undefined. `file` is undefined
 * if no file was found. `unseen`: settings whose secret only the daemon sees; they must not be used from
 * `config`.
 */
export async function inspectConfig(options: LoadOptions) {
  const { env, isElsewhere = false, runtimeDirectory, staged } = options
  const diagnostics = createDiagnostics()
  const { faults, warnings } = diagnostics
  const found = await readSettings(options, diagnostics)
  const { file, settings } = found
  if (settings === undefined) return { file, faults, warnings, config: undefined, unseen: [] }
  const context = { uid: process.geteuid!(), env, isElsewhere, runtimeDirectory, staged, diagnostics }
  const resolved = await resolveConfig(settings, { ...context, ...found })
  const config: Config | undefined = faults.length > 0 ? undefined : resolved.config
  if (config !== undefined) hideInStacks('configuration', () => revealAll(config))
  return { file, faults, warnings, config, unseen: resolved.unseen }
}

/** File names that are searched for, in this order. */
const FILE_NAMES = ['kyc-tokend.config.json', 'kyc-tokend.config.yaml', 'kyc-tokend.config.yml']

/** The example, in a checkout and as the Debian package has it. */
const EXAMPLE =
  'kyc-tokend.config.example.json (of the package: /usr/share/doc/kyc-tokend/examples/kyc-tokend.config.json)'

/** `file` is undefined if none was found; `settings` if their shape is faulty. */
type Found =
  | { readonly file: string; readonly settings: Settings; readonly stats: Stats }
  | { readonly file: string | undefined; readonly settings?: undefined }

/** The settings in the file that `--config` or $KYC_TOKEND_CONFIG names, or in the first of the search. */
async function readSettings(
  { configPath, env, staged }: LoadOptions,
  diagnostics: Diagnostics,
): Promise<Found> {
  const named = configPath ?? (env['KYC_TOKEND_CONFIG'] || undefined)
  const here = workingDirectory()
  const directories = configDirectories({ env, uid: process.geteuid!() }, here)
  const passed = named === undefined ? await passedOver(here, directories) : []
  const searched = named === undefined ? directories.flatMap(candidatesIn) : [resolve(named)]
  const found = await firstThere(searched, staged)
  if (found === undefined) {
    const option = named && (configPath === undefined ? '$KYC_TOKEND_CONFIG' : '--config')
    const words = [notFound(searched, option), ...passed].join('; ')
    diagnostics.fault('', words, { path: searched[0]!, isAbsent: true })
    return { file: undefined }
  }
  const { file, reading } = found
  /** The words follow the name of the file, quote nothing of it, and end with the remedy. */
  const unusable = (words: string, hidden?: Hidden): Found => {
    diagnostics.fault('', `the configuration file ${words}`, hidden)
    return { file }
  }
  if (reading.kind === 'unreadable') return unusable(reading.sentence, reading.hidden)
  const parsed = await parse(file, reading.bytes)
  if ('problem' in parsed) return unusable(parsed.problem)
  const { faults, settings } = validateDocument(parsed.document)
  for (const { at, sentence } of faults)
    diagnostics.fault(at, at === '' ? `the configuration ${sentence}` : sentence)
  const ignored = await othersThere(file, named)
  for (const words of [...passed, ...ignored]) diagnostics.warn('', words)
  return settings === undefined ? { file } : { file, settings, stats: reading.stats }
}

/** The warning about configurations beside this one, which comes before them in the search; none: it was named. */
async function othersThere(file: string, named: string | undefined): Promise<string[]> {
  if (named !== undefined) return []
  const others = candidatesIn(dirname(file)).filter((path) => path !== file)
  const readings = await Promise.all(others.map((path) => readFile(path)))
  const there = others.filter((_, index) => readings[index]?.kind !== 'absent')
  return there.length === 0 ? [] : [`${there.join(' and ')} beside it is ignored: remove what is not meant`]
}

/** The first of the files that exists; else the first that may, in a directory that may not be entered. */
async function firstThere(paths: readonly string[], staged?: StagedFiles) {
  let hidden: { file: string; reading: Present } | undefined
  for (const file of paths) {
    const reading = await readFile(file, staged)
    if (reading.kind === 'absent') continue
    if (reading.kind === 'read' || reading.isThere) return { file, reading }
    hidden ??= { file, reading }
  }
  return hidden
}

function candidatesIn(directory: string): string[] {
  return FILE_NAMES.map((name) => join(directory, name))
}

/** The working directory; `/` if it was removed. */
function workingDirectory(): string {
  return withSystemFallback('/', () => process.cwd())
}

/** `option`: the option or variable that names the file; undefined: the files were searched for. */
function notFound(searched: readonly string[], option: string | undefined): string {
  const shown = (path: string): string => (CONTROL_CHARACTER.test(path) ? printable(path) : path)
  const first = searched[0]!
  const absent = `there is no configuration file ${shown(first)}`
  const account = accountOfConfig(first)
  if (account !== undefined) return `${absent}: \`sudo ${programName()} setup --account ${account}\` makes it`
  if (option !== undefined) return `${absent}: correct ${option}, or make the file from ${EXAMPLE}`
  return (
    `there is no configuration file: \`${programName()} setup\` makes it ` +
    `(for the unit: with sudo), or name yours with --config (looked for ${searched.map(shown).join(', ')})`
  )
}

/** The words about a configuration in the working directory of root or of a unit. */
async function passedOver(here: string, searched: readonly string[]): Promise<string[]> {
  const found = searched.includes(here) ? undefined : await firstThere(candidatesIn(here))
  if (found === undefined) return []
  const shown = CONTROL_CHARACTER.test(found.file) ? printable(found.file) : found.file
  return [
    `${shown} is not read, because root and units read that in ${SYSTEM_CONFIG_DIRECTORY} ` +
      'and none in the working directory: name it with --config if it is meant',
  ]
}

/** Only its loaders are used: an explorer would run a `.config/config.js` of the working directory. */
async function loadCosmiconfig() {
  // When it is loaded it asks for the home directory, and throws without HOME and an entry in passwd.
  process.env['HOME'] ??= withSystemFallback('/', homedir)
  // A bundle has the default export of a CommonJS library and none of its names.
  return (await import('cosmiconfig')).default
}

/** Loads the libraries, that for YAML too, for a process that may not read the program's files later. */
export async function loadParsers(): Promise<void> {
  const { defaultLoadersSync } = await loadCosmiconfig()
  defaultLoadersSync['.yaml']('', 'a: 1')
}

/** An error of the library that reads YAML. */
type YamlError = { reason: string; mark?: { line: number; column: number } }

/** The document in a file, or why there is none, as the words that follow the name of the file. */
async function parse(file: string, bytes: Buffer): Promise<{ document: unknown } | { problem: string }> {
  const extension = extname(file)
  if (CONTROL_CHARACTER.test(file)) return { problem: 'has a control character in its path: rename it' }
  if (!/^\.(?:json|ya?ml)$/.test(extension))
    return { problem: 'must be named *.json, *.yaml or *.yml: rename it' }
  if (!isUtf8(bytes)) return { problem: 'is not valid UTF-8: save it as UTF-8' }
  // Without a byte order mark, which says nothing in UTF-8 and is allowed.
  const text = new TextDecoder().decode(bytes)
  if (text.trim() === '') return { problem: `is empty: begin with ${EXAMPLE}` }
  const isJson = extension === '.json'
  const fault = isJson ? findJsonFault(text) : undefined
  if (fault !== undefined) return { problem: `is not JSON at ${fault}` }
  const { defaultLoadersSync: loaders } = await loadCosmiconfig()
  try {
    const document = loaders[isJson ? '.json' : '.yaml']('', text)
    // Throws if an alias of YAML leads into what it is in: no walk through the document would end.
    JSON.stringify(document)
    return { document }
  } catch (error) {
    const { reason, mark } = error as Partial<YamlError>
    if (reason === undefined) return { problem: 'is nested too deep, or has an alias that leads into itself' }
    const where = mark === undefined ? '' : ` at line ${mark.line + 1}, column ${mark.column + 1}`
    // Words alone are the parser's own; anything else in a reason may be quoted from the file.
    const why = /^[a-z ,-]+$/.test(reason) ? reason : 'it cannot be read from there on'
    return { problem: `is not YAML${where}: ${why}` }
  }
}
