// Loads the configuration: finds its file (JSON or YAML, never code), and reports all its faults at once.
import { isUtf8 } from 'node:buffer'
import { homedir } from 'node:os'
import { dirname, extname, join, resolve } from 'node:path'
import { accountOfConfig } from '../host/account.ts'
import { configDirectories, programName } from '../host/paths.ts'
import { CONTROL_CHARACTER } from '../lib/display-text.ts'
import { withSystemFallback } from '../lib/error.ts'
import { hideInStacks } from '../lib/internal-fault.ts'
import { Secret } from '../lib/secret.ts'
import type { Config } from './config.ts'
import { ConfigError, createDiagnostics, formatIssue, printable, type Diagnostics } from './faults.ts'
import { revealAll } from './pair.ts'
import { permissionFaults, readInput, type Reading } from './read.ts'
import { resolveConfig, serviceWithoutSecrets, type Running } from './resolve.ts'
import type { Settings } from './schema.ts'
import { createInputs } from './secrets.ts'
import { validateDocument } from './document.ts'

export interface LoadOptions {
  /** `--config`. */
  readonly configPath?: string | undefined
  readonly env: NodeJS.ProcessEnv
  /** systemd runs the daemon and not this process: a secret that only the daemon sees is a warning then. */
  readonly isElsewhere?: boolean | undefined
  /** The configuration of a daemon that runs: `read.needsRestart` names what stays as it is there. */
  readonly running?: Running | undefined
}

/** The configuration, with its files, owners, modes and secrets as they are now. Throws ConfigError (78). */
export async function loadConfig(options: LoadOptions): Promise<Config> {
  const { config, faults, file } = await inspectConfig(options)
  if (config === undefined) throw new ConfigError(faults, file)
  return config
}

/**
 * Reports everything about a configuration. If there are faults, `config` is undefined. `file` is undefined if
 * no file was found. `unseen`: settings whose secret only the daemon sees; `config` lacks them.
 */
export async function inspectConfig(options: LoadOptions) {
  const diagnostics = createDiagnostics()
  const { faults, warnings } = diagnostics
  const { file, good } = await readSettings(options, diagnostics)
  if (file === undefined || good === undefined)
    return { file, faults, warnings, config: undefined, unseen: [] }
  const { settings, text, reading } = good
  const inputs = createInputs({ ...options, directory: dirname(file), diagnostics })
  const resolved = await resolveConfig(settings, { ...options, file, inputs })
  const facts = { ...reading, holdsSecret: LITERAL.test(text.replace(NAMES, '')) }
  for (const sentence of permissionFaults(file, reading.stats, facts))
    diagnostics.fault('', `the configuration file ${sentence}`)
  if (faults.length > 0) return { file, faults, warnings, config: undefined, unseen: inputs.unseen }
  const read = { ...resolved.read, document: new Secret(text), warnings: warnings.map(formatIssue) }
  const config: Config = { ...resolved, read }
  hideInStacks('configuration', () => revealAll(config))
  return { file, faults, warnings, config, unseen: inputs.unseen }
}

/** The service that a configuration describes, without its secrets. Throws ConfigError (78). */
export async function loadService(options: LoadOptions): Promise<ReturnType<typeof serviceWithoutSecrets>> {
  const diagnostics = createDiagnostics()
  const { file, good } = await readSettings(options, diagnostics)
  if (good === undefined) throw new ConfigError(diagnostics.faults, file)
  return serviceWithoutSecrets(good.settings)
}

/** Loads the libraries, for a process that may not read the program's files later. */
export async function loadParsers(): Promise<void> {
  await parseJson('{}')
  await import('./syntax.ts')
}

/** A secret in the clear, in the JSON of a document, and what only seems to be one. */
const LITERAL = /"(?:apiKey|apiSecret|key|password)":"/
const NAMES = /"names":\{[^}]*\}/g

/** File names that are searched for, in this order. */
const FILE_NAMES = ['kyc-tokend.config.json', 'kyc-tokend.config.yaml', 'kyc-tokend.config.yml']

/** The example, in a checkout and as the Debian package has it. */
const EXAMPLE =
  'kyc-tokend.config.example.json (of the package: /usr/share/doc/kyc-tokend/examples/kyc-tokend.config.json)'

/** `file` is undefined if none was found, all else if there are faults. `text`: the document in JSON. */
interface Found {
  readonly file?: string
  readonly good?: { readonly settings: Settings; readonly text: string; readonly reading: Present }
}
type Present = Extract<Reading, { bytes: Buffer }>

/** The settings in the file that `--config` or $KYC_TOKEND_CONFIG names, or in the first of the search. */
async function readSettings({ configPath, env }: LoadOptions, diagnostics: Diagnostics): Promise<Found> {
  const named = configPath ?? (env['KYC_TOKEND_CONFIG'] || undefined)
  const searched = named === undefined ? candidates(env) : [resolve(named)]
  for (const file of searched) {
    const reading = await readInput(file)
    if (reading === null) continue
    if ('problem' in reading) {
      diagnostics.fault('', `the configuration file ${reading.problem}`)
      return { file }
    }
    const parsed = await parse(file, reading.bytes)
    if ('problem' in parsed) {
      diagnostics.fault('', `the configuration file ${parsed.problem}`)
      return { file }
    }
    const { faults, settings } = validateDocument(parsed.document)
    for (const { at, sentence } of faults)
      diagnostics.fault(at, at === '' ? `the configuration ${sentence}` : sentence)
    return settings ? { file, good: { settings, text: parsed.text, reading } } : { file }
  }
  const option = named && (configPath === undefined ? '$KYC_TOKEND_CONFIG' : '--config')
  diagnostics.fault('', notFound(searched, option))
  return {}
}

function candidates(env: NodeJS.ProcessEnv): string[] {
  const directories = configDirectories({ env, uid: process.geteuid!() }, process.cwd())
  return directories.flatMap((directory) => FILE_NAMES.map((name) => join(directory, name)))
}

/** `option`: the option or variable that names the file; undefined: the files were searched for. */
function notFound(searched: readonly string[], option: string | undefined): string {
  const files = searched.map((path) => (CONTROL_CHARACTER.test(path) ? printable(path) : path)).join(', ')
  const account = accountOfConfig(searched[0]!)
  const setup = `${programName()} setup${account === undefined ? '' : ` --account ${account}`}`
  const other = option === undefined ? 'or name yours with --config' : `or correct ${option}`
  return `there is no configuration file ${files}: \`${setup}\` makes it (for the unit: with sudo), ${other}`
}

/** The document in a file and its JSON, or why there is none, as the words that follow the name of the file. */
async function parse(
  file: string,
  bytes: Buffer,
): Promise<{ document: unknown; text: string } | { problem: string }> {
  if (CONTROL_CHARACTER.test(file)) return { problem: 'has a control character in its path: rename it' }
  const isJson = extname(file) === '.json'
  if (!isJson && !/\.ya?ml$/.test(file))
    return { problem: 'must be named *.json, *.yaml or *.yml: rename it' }
  if (!isUtf8(bytes)) return { problem: 'is not valid UTF-8: save it as UTF-8' }
  // Without a byte order mark, which says nothing in UTF-8 and is allowed.
  const source = new TextDecoder().decode(bytes)
  if (source.trim() === '') return { problem: `is empty: begin with ${EXAMPLE}` }
  try {
    const document: unknown = isJson
      ? await parseJson(source)
      : (await import('./syntax.ts')).parseYaml(source)
    // Throws if an alias of YAML leads into what it is in.
    return { document, text: JSON.stringify(document) }
  } catch {
    const { locateFault } = await import('./syntax.ts')
    return { problem: `is not ${isJson ? 'JSON' : 'YAML'} at ${locateFault(source, { isJson })}` }
  }
}

/**
 * All that is used of cosmiconfig is this loader: its search would run a `.config/config.js` of the working
 * directory, and open a FIFO.
 */
async function parseJson(text: string): Promise<unknown> {
  // When it is loaded it asks for the home directory, and throws without HOME and an entry in passwd.
  process.env['HOME'] ??= withSystemFallback('/', homedir)
  // A bundle has the default export of a CommonJS library and none of its names.
  return (await import('cosmiconfig')).default.defaultLoadersSync['.json']('', text)
}
