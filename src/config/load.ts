// Finds the configuration, validates it and makes it ready to use: `loadConfig` throws all its faults at once.
import type { Config } from './config.ts'
import { findConfig } from './find.ts'
import { ConfigError, formatIssue, silent, type ConfigIssue, type Diagnostics } from './issues.ts'
import { resolveConfig, resolvePlan } from './resolve.ts'
import { validateDocument } from './validate.ts'

export interface LoadOptions {
  /** `--config`. */
  readonly configPath?: string | undefined
  readonly env: NodeJS.ProcessEnv
  /** The daemon runs as a service and this process does not: a secret that only a service sees is a warning, not a fault. */
  readonly isElsewhere?: boolean | undefined
  /** The runtime directory of a daemon that runs, instead of the configured one: its outputs stay there. */
  readonly runtimeDirectory?: string | undefined
}

export type Inspection = Awaited<ReturnType<typeof inspectConfig>>

/** The configuration, frozen. Throws ConfigError (78). Files, owners, modes and secrets are read again each time. */
export async function loadConfig(options: LoadOptions): Promise<Config> {
  const { config, faults, file } = await inspectConfig(options)
  if (config === undefined) throw new ConfigError(faults, file)
  return config
}

/**
 * The part of a configuration that needs neither its secrets nor other files; without a path that of the standard
 * service with all defaults. Throws ConfigError (78).
 */
export async function loadPlan({ configPath, env }: { configPath: unknown; env: NodeJS.ProcessEnv }) {
  if (typeof configPath !== 'string')
    return resolvePlan(validateDocument({ baseUrl: 'https://api.example.com' }).validPart!, silent)
  const { file, usable, faults, diagnostics } = await readDocument({ configPath, env })
  const plan = usable && resolvePlan(usable.validPart, diagnostics)
  if (plan === undefined || faults.length > 0) throw new ConfigError(faults, file)
  return plan
}

/**
 * All that there is to say about a configuration, faults included: where there are any, `config` is undefined. `file` is
 * undefined where none was found. `unseen`: settings whose secret only the service sees, not to be used in `config`.
 */
export async function inspectConfig(options: LoadOptions) {
  const { env, isElsewhere = false, runtimeDirectory } = options
  const { file, usable, faults, warnings, diagnostics } = await readDocument(options)
  const context = { uid: process.geteuid!(), env, isElsewhere, runtimeDirectory, diagnostics }
  const resolved = usable && (await resolveConfig(usable.validPart, { ...context, ...usable }))
  const config =
    resolved && faults.length === 0
      ? deepFreeze({ ...resolved.config, warnings: warnings.map(formatIssue) })
      : undefined
  const unseen: readonly string[] = resolved?.unseen ?? []
  return { file, faults, warnings, config, unseen }
}

/** The file that is found, and what of it is usable. */
async function readDocument(options: LoadOptions) {
  const faults: ConfigIssue[] = []
  const warnings: ConfigIssue[] = []
  const faulty = new Set<string>()
  /** For the rules across settings: a setting that is itself faulty breaks none of them. */
  const diagnostics: Diagnostics = {
    fault(at, sentence) {
      if (!faulty.has(at)) faults.push({ at, sentence })
      return undefined
    },
    warn: (at, sentence) => void warnings.push({ at, sentence }),
  }
  const all = { faults, warnings, diagnostics }
  const found = await findConfig(options)
  if (found.kind === 'unusable') {
    diagnostics.fault('', found.sentence)
    return { ...all, file: found.file, usable: undefined }
  }
  const { faults: shape, validPart } = validateDocument(found.document)
  for (const { at, sentence } of shape) {
    faults.push({ at, sentence: at === '' ? `the configuration ${sentence}` : sentence })
    if (at !== '') faulty.add(at)
  }
  const { file, stats } = found
  return { ...all, file, usable: validPart && { file, stats, validPart } }
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const child of Object.values(value)) deepFreeze(child)
  }
  return value
}
