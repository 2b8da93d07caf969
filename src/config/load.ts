// Finds the configuration, validates it and makes it ready to use: `loadConfig` throws all its faults at once.
import { existsSync, type Stats } from 'node:fs'
import { join, resolve } from 'node:path'

import { accountOfConfig } from '../lib/account.ts'
import { CONTROL_CHARACTER } from '../lib/display-text.ts'
import { configDirectories, SYSTEM_CONFIG_DIRECTORY } from '../lib/paths.ts'
import type { Config } from './config.ts'
import { EXAMPLE, FILE_NAMES, findConfig, workingDirectory } from './find.ts'
import { ConfigError, formatIssue, printable, type ConfigIssue, type Diagnostics } from './issues.ts'
import { resolveConfig, resolvePlan, type Plan } from './resolve.ts'
import { validateDocument, type ValidPart } from './validate.ts'

export interface LoadOptions {
  /** `--config`. */
  readonly configPath?: string | undefined
  readonly env: NodeJS.ProcessEnv
  /** The daemon runs as a service and this process does not: a secret that only a service sees is a warning, not a fault. */
  readonly isElsewhere?: boolean | undefined
  /** The runtime directory of a daemon that runs, instead of the configured one: its outputs stay there. */
  readonly runtimeDirectory?: string | undefined
}

/** All that there is to say about a configuration, faults included. */
export interface Inspection {
  /** Absolute; undefined where none was found. */
  readonly file: string | undefined
  readonly faults: readonly ConfigIssue[]
  readonly warnings: readonly ConfigIssue[]
  /** Undefined where there are faults. */
  readonly config: Config | undefined
  /** Settings whose secret only the service sees; in `config` they are not to be used. */
  readonly unseen: readonly string[]
}

/** The configuration, frozen. Throws ConfigError (78). Files, owners, modes and secrets are read again each time. */
export async function loadConfig(options: LoadOptions): Promise<Config> {
  const { config, faults, file } = await inspectConfig({ ...options, isElsewhere: false })
  if (config === undefined) throw new ConfigError(faults, file)
  return config
}

/** The part of a configuration that needs neither its secrets nor other files. Throws ConfigError (78). */
export async function loadPlan(options: Pick<LoadOptions, 'configPath' | 'env'>): Promise<Plan> {
  const { file, validPart, faults, diagnostics } = await readDocument(options)
  const plan = validPart && resolvePlan(validPart, diagnostics)
  if (plan === undefined || faults.length > 0) throw new ConfigError(faults, file)
  return plan
}

export async function inspectConfig(options: LoadOptions): Promise<Inspection> {
  const { env, isElsewhere = false, runtimeDirectory } = options
  const { file, stats, validPart, faults, warnings, diagnostics } = await readDocument(options)
  const context = { uid: process.geteuid!(), env, isElsewhere, runtimeDirectory, diagnostics }
  const resolved = file && stats && validPart && (await resolveConfig(validPart, { ...context, file, stats }))
  const config =
    resolved && faults.length === 0
      ? deepFreeze({ ...resolved.config, warnings: warnings.map(formatIssue) })
      : undefined
  return { file, faults, warnings, config, unseen: resolved ? resolved.unseen : [] }
}

interface ReadDocument {
  readonly file?: string
  readonly stats?: Stats
  readonly validPart?: ValidPart | undefined
  readonly faults: readonly ConfigIssue[]
  readonly warnings: readonly ConfigIssue[]
  /** For the rules across settings: a setting that is itself faulty breaks none of them. */
  readonly diagnostics: Diagnostics
}

/** The file that is found, and the usable part of it. */
async function readDocument({ env, configPath }: LoadOptions): Promise<ReadDocument> {
  const faults: ConfigIssue[] = []
  const warnings: ConfigIssue[] = []
  const fault = (at: string, sentence: string): unknown => faults.push({ at, sentence })
  const diagnostics: Diagnostics = { fault, warn: (at, sentence) => warnings.push({ at, sentence }) }
  const named = configPath ?? (env['KYC_TOKEND_CONFIG'] || undefined)
  const here = workingDirectory()
  const directories = configDirectories({ env, uid: process.geteuid!() }, here)
  const found = await findConfig(named === undefined ? { directories } : { file: resolve(named) })
  const passedOver =
    named !== undefined || directories.includes(here)
      ? []
      : FILE_NAMES.map((name) => join(here, name)).filter((path) => existsSync(path))
  if (found.kind === 'absent') {
    const option = configPath === undefined ? '$KYC_TOKEND_CONFIG' : '--config'
    fault(
      '',
      notFound(found.searched, { named: named === undefined ? undefined : option, here: passedOver[0] }),
    )
    return { faults, warnings, diagnostics }
  }
  const { file } = found
  if (found.kind === 'faulty') {
    fault('', `the configuration file ${found.sentence}`)
    return { file, faults, warnings, diagnostics }
  }
  if (CONTROL_CHARACTER.test(file))
    fault('', 'the path of the configuration file holds a control character: rename it')
  for (const other of found.others)
    diagnostics.warn('', `${other} is there, too, and is not read: remove it, or name it with --config`)
  for (const path of passedOver) diagnostics.warn('', notLookedAt(path))
  const { faults: shape, validPart } = validateDocument(found.document)
  const isFaulty = new Set(shape.map(({ at }) => at))
  for (const { at, sentence } of shape) fault(at, at === '' ? `the configuration ${sentence}` : sentence)
  return {
    file,
    stats: found.stats,
    validPart,
    faults,
    warnings,
    diagnostics: {
      ...diagnostics,
      fault: (at, sentence) => (at !== '' && isFaulty.has(at) ? undefined : fault(at, sentence)),
    },
  }
}

function shown(path: string): string {
  return CONTROL_CHARACTER.test(path) ? printable(path) : path
}

function notLookedAt(path: string): string {
  return `${shown(path)} is not looked at, because root and services read ${SYSTEM_CONFIG_DIRECTORY} only: name it with --config, or move it there`
}

/** Without a `named` file these were searched for, and `here` is one in a working directory that is not looked at. */
function notFound(
  searched: readonly string[],
  { named, here }: { named: '--config' | '$KYC_TOKEND_CONFIG' | undefined; here: string | undefined },
): string {
  const [first = ''] = searched
  const absent = `there is no configuration file ${shown(first)}`
  const account = accountOfConfig(first)
  if (named !== undefined && account !== undefined)
    return `${absent}: \`sudo kyc-tokend setup --account ${account}\` makes it`
  if (named !== undefined) return `${absent}: correct ${named}, or make the file from ${EXAMPLE}`
  if (here !== undefined) return `${absent}: ${notLookedAt(here)}`
  return `there is no configuration file: \`kyc-tokend setup\` makes it (of the service: with sudo), or name yours with --config (looked for ${searched.map(shown).join(', ')})`
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const child of Object.values(value)) deepFreeze(child)
  }
  return value
}

/** The same with all defaults. */
export function standardPlan(): Plan {
  return resolvePlan(validateDocument({ baseUrl: 'https://api.example.com' }).validPart!, {
    fault: () => undefined,
    warn: () => undefined,
  })
}
