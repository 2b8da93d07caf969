// Finds the configuration, validates it and makes it ready to use: `loadConfig` throws all its faults at once.
import { resolve } from 'node:path'

import { CONTROL_CHARACTER } from '../lib/display-text.ts'
import { configDirectories } from '../lib/paths.ts'
import { accountOfConfig } from '../lib/account.ts'
import type { Config } from './config.ts'
import { EXAMPLE, findConfig } from './find.ts'
import { ConfigError, formatIssue, printable, type ConfigIssue, type Diagnostics } from './issues.ts'
import { resolveConfig } from './resolve.ts'
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

export async function inspectConfig(options: LoadOptions): Promise<Inspection> {
  const faults: ConfigIssue[] = []
  const warnings: ConfigIssue[] = []
  const diagnostics: Diagnostics = {
    fault: (at, sentence) => faults.push({ at, sentence }),
    warn: (at, sentence) => warnings.push({ at, sentence }),
  }
  const uid = process.geteuid!()
  const { env, isElsewhere = false, runtimeDirectory } = options
  const named = options.configPath ?? (env['KYC_TOKEND_CONFIG'] || undefined)
  const found = await findConfig(
    named === undefined
      ? { directories: configDirectories({ env, uid }, resolve('.')) }
      : { file: resolve(named) },
  )
  const withoutConfig = (file: string | undefined): Inspection => ({
    file,
    faults,
    warnings,
    config: undefined,
    unseen: [],
  })
  if (found.kind === 'absent') {
    diagnostics.fault('', notFound(found.searched, { isNamed: named !== undefined, ...options }))
    return withoutConfig(undefined)
  }
  const { file } = found
  if (found.kind === 'faulty') {
    diagnostics.fault('', `the configuration file ${found.sentence}`)
    return withoutConfig(file)
  }
  if (CONTROL_CHARACTER.test(file))
    diagnostics.fault('', 'the path of the configuration file holds a control character: rename it')
  for (const other of found.others)
    diagnostics.warn('', `${other} is there, too, and is not read: remove it, or name it with --config`)
  const { faults: shape, validPart } = validateDocument(found.document)
  for (const { at, sentence } of shape)
    diagnostics.fault(at, at === '' ? `the configuration ${sentence}` : sentence)
  if (validPart === undefined) return withoutConfig(file)
  const unseen: string[] = []
  const context = { ...found, uid, env, isElsewhere, runtimeDirectory, diagnostics, unseen }
  const resolved = await resolveConfig(validPart, context)
  if (faults.length > 0) return withoutConfig(file)
  const config = deepFreeze({ ...resolved, warnings: warnings.map(formatIssue) })
  return { file, faults, warnings, config, unseen }
}

function notFound(
  searched: readonly string[],
  { isNamed, configPath }: { isNamed: boolean; configPath?: string | undefined },
): string {
  const names = searched.map((path) => (CONTROL_CHARACTER.test(path) ? printable(path) : path))
  const account = accountOfConfig(names[0] ?? '')
  if (isNamed && account !== undefined)
    return `there is no configuration file ${names[0]}: \`sudo kyc-tokend setup --account ${account}\` makes it`
  if (isNamed)
    return `there is no configuration file ${names[0]}: correct ${configPath === undefined ? '$KYC_TOKEND_CONFIG' : '--config'}, or make the file from ${EXAMPLE}`
  return `there is no configuration file: \`kyc-tokend setup\` makes it (of the service: with sudo), or name yours with --config (looked for ${names.join(', ')})`
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const child of Object.values(value)) deepFreeze(child)
  }
  return value
}
