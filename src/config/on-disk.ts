// Compares the configuration on disk with the running one. It is loaded only when one of its files has changed.
import { dirname } from 'node:path'
import { errorMessage, UserError } from '../lib/error.ts'
import { fs } from '../lib/fs.ts'
import { DiskError, inDirectory } from '../lib/in-directory.ts'
import { isSame } from '../lib/secret.ts'
import { secretsOf, type Config } from './config.ts'

/** The configuration on disk: the same object until one of the files, or the running configuration, changes. */
export type OnDisk =
  | { readonly kind: 'loaded'; readonly config: Config }
  /** A sentence with the remedy. */
  | { readonly kind: 'faulty'; readonly problem: string }
  /** A disk does not answer: what is on it is not known. */
  | { readonly kind: 'stalled'; readonly problem: string }

export interface ConfigurationState {
  readonly state: 'current' | 'changed' | 'faulty'
  /** The faults and their remedies, or why a reload does not help; null: neither. */
  readonly problem: string | null
  /** The problem is another pair in the secret files: the service refused it, or it is being tried. */
  readonly pair?: 'refused' | 'tried'
}

export type ConfigOnDisk = ReturnType<typeof createConfigOnDisk>

/** Settings that take effect only at a restart. */
const OF_RESTART = ['runtimeDirectory', 'stateDirectory'] as const

/** `load` throws nothing but UserError. */
export function createConfigOnDisk(load: () => Promise<Config>, running: () => Config) {
  let last: { version: string; against: Config; found: OnDisk } | null = null
  let stalled: OnDisk | null = null
  let examining: Promise<OnDisk> | null = null

  async function examine(isFaultKept: boolean): Promise<OnDisk> {
    const against = running()
    try {
      const version = await versionOf([against.file, ...against.inputs])
      const isKept = isFaultKept || last?.found.kind === 'loaded'
      if (!isKept || last?.version !== version || last.against !== against)
        last = { version, against, found: await load().then(loaded, faulty) }
      stalled = null
      return last.found
    } catch (error) {
      if (!(error instanceof DiskError)) throw error
      stalled = { kind: 'stalled', problem: error.message }
      return stalled
    }
  }

  return {
    /**
     * Loads the configuration if it has changed; with `isFaultKept` false also a faulty one, whose fault may have gone by itself:
     * a certificate has become valid, a group was made. Calls at the same time share one examination.
     */
    examine: async ({ isFaultKept = true } = {}): Promise<OnDisk> =>
      (examining ??= examine(isFaultKept).finally(() => (examining = null))),
    /** The result of the last examination; secrets in files are not compared. */
    state(): ConfigurationState {
      const found = stalled ?? last?.found
      if (found !== undefined && found.kind !== 'loaded') {
        const words = hasSecretFiles(running())
          ? 'No rotation of the secrets is noticed until this is corrected: '
          : ''
        return { state: 'faulty', problem: `${words}${found.problem}` }
      }
      if (found === undefined || hasSameSettings(found.config, running()))
        return { state: 'current', problem: null }
      const fixed = OF_RESTART.filter((name) => found.config[name] !== running()[name])
      const problem = fixed.length === 0 ? null : `${fixed.join(' and ')} can be changed by a restart alone`
      return { state: 'changed', problem }
    },
  }
}

export function hasSecretFiles({ secretFiles }: Config): boolean {
  return Object.keys(secretFiles).length > 0
}

/** Reports whether both are the same, apart from secrets that come from files. */
export function hasSameSettings(one: Config, other: Config): boolean {
  return isSame(settingsOf(one), settingsOf(other))
}

function settingsOf({ credentials, endsAtMs, ...settings }: Config): object {
  const written = Object.entries(secretsOf({ credentials })).filter(([at]) => !(at in settings.secretFiles))
  return { ...settings, warnings: null, endsAtMs: endsAtMs.pair, written: Object.fromEntries(written) }
}

/**
 * A text that changes when a file is written or replaced, or when a link to it is replaced. One call for each directory.
 * Throws DiskError.
 */
async function versionOf(paths: readonly string[]): Promise<string> {
  const versions = await Promise.all(
    [...new Set(paths.map(dirname))].map(async (directory) => {
      const files = paths.filter((path) => dirname(path) === directory)
      return inDirectory(directory, async () => Array.fromAsync(files, versionOfFile))
    }),
  )
  return versions.flat().join(' ')
}

async function versionOfFile(path: string): Promise<string> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await fs.stat(path, { bigint: true })
    return [dev, ino, size, mtimeNs, ctimeNs].join(':')
  } catch (error) {
    return errorMessage(error)
  }
}

const loaded = (config: Config): OnDisk => ({ kind: 'loaded', config })

function faulty(error: unknown): OnDisk {
  if (!(error instanceof UserError) || error instanceof DiskError) throw error
  return { kind: 'faulty', problem: error.message }
}
