// Loads the configuration: finds its file (JSON or YAML, never code), and reports all its faults at once.
import { isUtf8 } from 'node:buffer'
import { homedir } from 'node:os'
import { extname, join, resolve } from 'node:path'
import { accountOf } from '../host/account.ts'
import { configDirectories, programName } from '../host/paths.ts'
import { CONTROL_CHARACTER } from '../lib/display-text.ts'
import { withSystemFallback } from '../lib/error.ts'
import { hideInStacks } from '../lib/log.ts'
import { revealAll, type Config, type Described } from './config.ts'
import { validateDocument } from './document.ts'
import { ConfigError } from './faults.ts'
import { permissionFaults, readInput } from './read.ts'
import { describedService, resolveConfig, type RestartOnly } from './resolve.ts'
import { createInputs } from './secrets.ts'

export interface LoadOptions {
  /** `--config`. */
  readonly configPath?: string | undefined
  readonly env: NodeJS.ProcessEnv
  /** systemd runs the daemon and not this process: a secret that only the daemon sees is a warning then. */
  readonly isElsewhere?: boolean | undefined
  /** The configuration of a daemon that runs: `read.needsRestart` names what stays as it is there. */
  readonly inForce?: RestartOnly | undefined
}

/** The configuration, with its files, owners, modes and secrets as they are now. Throws ConfigError (78). */
export async function loadConfig(options: LoadOptions): Promise<Config> {
  const { file, reading, settings, text } = await readSettings(options)
  const inputs = createInputs({ ...options, file })
  const config = await resolveConfig(settings, inputs, { ...options, text })
  for (const sentence of permissionFaults(file, reading, { holdsSecret: inputs.literals.length > 0 }))
    inputs.fault('', `the configuration file ${sentence}`)
  if (inputs.faults.length > 0) throw new ConfigError(inputs.faults, file)
  hideInStacks('configuration', () => revealAll(config))
  return config
}

/** The service that a configuration describes, without its secrets. Throws ConfigError (78). */
export async function loadService(options: LoadOptions): Promise<Described> {
  return describedService((await readSettings(options)).settings)
}

/** File names that are searched for, in this order. */
const FILE_NAMES = ['kyc-tokend.config.json', 'kyc-tokend.config.yaml', 'kyc-tokend.config.yml']

/**
 * The settings in the file that `--config` or $KYC_TOKEND_CONFIG names, or in the first of the search. `text`: the
 * document in JSON. Throws ConfigError (78).
 */
async function readSettings({ configPath, env }: LoadOptions) {
  const named = configPath ?? (env['KYC_TOKEND_CONFIG'] || undefined)
  const directories = configDirectories({ env, uid: process.geteuid!() }, process.cwd())
  const candidates = directories.flatMap((directory) => FILE_NAMES.map((name) => join(directory, name)))
  const searched = named === undefined ? candidates : [resolve(named)]
  for (const file of searched) {
    const read = await readDocument(file)
    if (read === null) continue
    if ('problem' in read)
      throw new ConfigError([{ at: '', sentence: `the configuration file ${read.problem}` }], file)
    const { faults, settings } = validateDocument(read.document)
    if (settings === undefined) throw new ConfigError(faults, file)
    return { file, settings, ...read }
  }
  const account = accountOf(searched[0]!)
  const setup = `${programName()} setup${account === undefined ? '' : ` --account ${account}`}`
  const remedy = `\`${setup}\` makes it (for the unit: with sudo), or name yours with --config`
  throw new ConfigError(
    [{ at: '', sentence: `there is no configuration file ${searched.join(', ')}: ${remedy}` }],
    undefined,
  )
}

/** The document in a file and its JSON; null: there is no file. `problem`: words that follow the name of the file. */
async function readDocument(file: string) {
  const reading = await readInput(file)
  if (reading === null || 'problem' in reading) return reading
  if (CONTROL_CHARACTER.test(file)) return { problem: 'has a control character in its path: rename it' }
  const isJson = extname(file) === '.json'
  if (!isJson && !/\.ya?ml$/.test(file))
    return { problem: 'must be named *.json, *.yaml or *.yml: rename it' }
  if (!isUtf8(reading.bytes)) return { problem: 'is not valid UTF-8: save it as UTF-8' }
  // Without a byte order mark, which says nothing in UTF-8 and is allowed.
  const source = new TextDecoder().decode(reading.bytes)
  if (source.trim() === '') return { problem: `is empty: begin with kyc-tokend.config.example.json` }
  try {
    const document: unknown = isJson
      ? await parseJson(source)
      : (await import('./syntax.ts')).parseYaml(source)
    // Throws if an alias of YAML leads into what it is in.
    return { document, text: JSON.stringify(document), reading }
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
