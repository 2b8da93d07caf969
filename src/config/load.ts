// Finds the configuration, judges it and makes it ready to use: `loadConfig` throws all its faults at once.
import type { Stats } from 'node:fs'
import { join, resolve } from 'node:path'

import { configDirectories } from '../lib/places.ts'
import type { Config } from './config.ts'
import { ConfigFaults, tellFault, type Fault, type Verdicts } from './faults.ts'
import { FILE_NAMES, isJsonFile, parseConfig } from './parse.ts'
import { readFile } from './read-file.ts'
import { resolveConfig, type SoundPart } from './resolve.ts'

/** What is remembered of configurations whose shape this version of the program has judged good. */
export interface Judged {
  isKnownGood(bytes: Buffer): boolean
  remember(bytes: Buffer): void
}

export interface LoadOptions {
  /** `--config`. */
  readonly configPath?: string | undefined
  readonly env: NodeJS.ProcessEnv
  /** Who runs the daemon, where that is not this process. */
  readonly judge?: { readonly uid: number } | undefined
  /** Spares the schema for bytes that are known; only JSON is remembered. */
  readonly judged?: Judged | undefined
  /** The daemon runs as a service and this process does not: what only a service sees is a warning, not a fault. */
  readonly isElsewhere?: boolean | undefined
  /** The runtime directory of a daemon that runs, in place of what is configured: its outputs stay there. */
  readonly runtimeDirectory?: string | undefined
}

/** What there is to say about a configuration, faults and all. */
export interface Inspection {
  /** Absolute; undefined where none was found. */
  readonly file: string | undefined
  readonly faults: readonly Fault[]
  readonly warnings: readonly Fault[]
  /** Undefined where there are faults. */
  readonly config: Config | undefined
  /** Settings whose secret only the service sees; in `config` they are not to be used. */
  readonly unseen: readonly string[]
}

/** The configuration, frozen. Throws ConfigFaults (78). Files, owners, modes and secrets are judged anew each time. */
export async function loadConfig(options: LoadOptions): Promise<Config> {
  const { config, faults, file } = await inspectConfig({ ...options, isElsewhere: false })
  if (config === undefined) throw new ConfigFaults(faults, file)
  return config
}

export async function inspectConfig(options: LoadOptions): Promise<Inspection> {
  const faults: Fault[] = []
  const warnings: Fault[] = []
  const verdicts: Verdicts = {
    fault: (at, sentence) => faults.push({ at, sentence }),
    warn: (at, sentence) => warnings.push({ at, sentence }),
  }
  const uid = options.judge?.uid ?? process.geteuid!()
  const found = findFile(options, { uid, verdicts })
  const document = found === undefined ? undefined : await judgedDocument(found, { ...options, verdicts })
  if (found === undefined || document === undefined)
    return { file: found?.file, faults, warnings, config: undefined, unseen: [] }
  const { env, isElsewhere = false, runtimeDirectory } = options
  const context = { ...found, uid, env, isElsewhere, runtimeDirectory, verdicts }
  const resolved = await resolveConfig(document, context)
  if (faults.length > 0) return { file: found.file, faults, warnings, config: undefined, unseen: [] }
  const unseen = Object.entries(resolved.credentials)
    .filter(([, secret]) => (secret as unknown) === undefined)
    .map(([name]) => `credentials.${name}`)
  const config = deepFreeze({ ...resolved, warnings: warnings.map(tellFault) })
  return { file: found.file, faults, warnings, config, unseen }
}

interface Found {
  readonly file: string
  readonly bytes: Buffer
  readonly stats: Stats
}

function findFile(
  { configPath, env }: LoadOptions,
  { uid, verdicts }: { uid: number; verdicts: Verdicts },
): Found | undefined {
  const fromEnv = env['KYC_TOKEND_CONFIG']
  const named = configPath ?? (fromEnv === '' ? undefined : fromEnv)
  const places = named === undefined ? searchPlaces({ env, uid }) : [resolve(named)]
  for (const file of places) {
    const reading = readFile(file)
    if (reading.kind === 'read') return { file, bytes: reading.bytes, stats: reading.stats }
    if (reading.kind === 'absent') continue
    verdicts.fault('', `the configuration file ${file} ${reading.sentence}`)
    return undefined
  }
  verdicts.fault('', notFound(places, { isNamed: named !== undefined, configPath }))
  return undefined
}

function searchPlaces(asker: { env: NodeJS.ProcessEnv; uid: number }): string[] {
  return configDirectories(asker, resolve('.')).flatMap((directory) =>
    FILE_NAMES.map((name) => join(directory, name)),
  )
}

function notFound(
  places: readonly string[],
  { isNamed, configPath }: { isNamed: boolean; configPath: string | undefined },
): string {
  if (isNamed)
    return `there is no configuration file ${places[0]}: mend ${configPath === undefined ? '$KYC_TOKEND_CONFIG' : '--config'}, or make the file from kyc-tokend.config.example.json`
  return `there is no configuration file: make ${places[0]} from kyc-tokend.config.example.json, or name yours with --config (looked for ${places.join(', ')})`
}

/** The document without the values that are faulty in themselves, so that the rest can be judged too; undefined: nothing is left. */
async function judgedDocument(
  { file, bytes }: Found,
  { judged, verdicts }: Pick<LoadOptions, 'judged'> & { verdicts: Verdicts },
): Promise<SoundPart | undefined> {
  const trusted = judged !== undefined && isJsonFile(file) && judged.isKnownGood(bytes)
  const parsed = await parseConfig(file, bytes, { trusted })
  if (parsed.kind === 'faulty') {
    verdicts.fault('', `the configuration file ${parsed.sentence}`)
    return undefined
  }
  if (trusted) return parsed.document as SoundPart
  const { judgeDocument } = await import('./schema.ts')
  const { faults, faultyPaths } = judgeDocument(parsed.document)
  for (const { at, sentence } of faults)
    verdicts.fault(at, at === '' ? `the configuration ${sentence}` : sentence)
  if (faults.length === 0 && isJsonFile(file)) judged?.remember(bytes)
  return without(parsed.document, faultyPaths) as SoundPart | undefined
}

/** A copy without what is at these paths. */
function without(node: unknown, paths: readonly (readonly PropertyKey[])[]): unknown {
  if (paths.some((path) => path.length === 0)) return undefined
  if (paths.length === 0 || typeof node !== 'object' || node === null) return node
  const below = (key: PropertyKey): PropertyKey[][] =>
    paths.filter((path) => String(path[0]) === String(key)).map((path) => path.slice(1))
  if (Array.isArray(node)) return node.map((element, index) => without(element, below(index)))
  return Object.fromEntries(Object.entries(node).map(([key, child]) => [key, without(child, below(key))]))
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const child of Object.values(value)) deepFreeze(child)
  }
  return value
}
