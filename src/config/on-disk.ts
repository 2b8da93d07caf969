// The configuration on disk against the running one: loaded again only when one of its files has changed.

import { errorCode, UserError } from '../lib/error.ts'
import { fs } from '../lib/fs.ts'
import { Secret } from '../lib/secret.ts'
import type { Config } from './config.ts'

type OnDisk =
  | { readonly kind: 'loaded'; readonly config: Config }
  /** A sentence with the remedy. */
  | { readonly kind: 'faulty'; readonly problem: string }

interface ConfigurationState {
  /** Secrets in files do not count: they are taken over without a reload. */
  readonly state: 'current' | 'changed' | 'faulty'
  /** The faults and their remedies; null where there are none. */
  readonly problem: string | null
}

export interface ConfigOnDisk {
  /** The `version` is another one whenever one of the files, or the running configuration, has changed. */
  examine(): Promise<{ version: string; onDisk: OnDisk }>
  /** As of the last examination. */
  state(): ConfigurationState
}

export function createConfigOnDisk(options: {
  /** Throws nothing but UserError. */
  load: () => Promise<Config>
  running: () => Config
}): ConfigOnDisk {
  const { running, load } = options
  let last: { version: string; onDisk: OnDisk } | null = null
  let seen: Config | null = null
  let changes = 0

  async function examine(): Promise<{ version: string; onDisk: OnDisk }> {
    if (seen !== running()) {
      seen = running()
      changes += 1
    }
    const version = `${changes} ${await versionOf([seen.file, ...seen.inputs])}`
    if (last?.version !== version) last = { version, onDisk: await read(load) }
    return last
  }

  return {
    examine,
    state() {
      if (last?.onDisk.kind === 'faulty') return { state: 'faulty', problem: last.onDisk.problem }
      const isCurrent = last === null || hasSameSettings(last.onDisk.config, running())
      return { state: isCurrent ? 'current' : 'changed', problem: null }
    },
  }
}

/** Reports whether both say the same but for secrets that come from files. */
export function hasSameSettings(one: Config, other: Config): boolean {
  return settingsOf(one) === settingsOf(other)
}

function settingsOf({ credentials, secretFiles, ...settings }: Config): string {
  const own = (name: 'apiKey' | 'apiSecret'): Secret | null =>
    secretFiles[name] === null ? credentials[name] : null
  const compared = {
    ...settings,
    warnings: [],
    secretFiles,
    apiKey: own('apiKey'),
    apiSecret: own('apiSecret'),
  }
  return JSON.stringify(compared, revealed)
}

/** Secrets look like each other unless they are revealed; what JSON gives for them comes as `shown`. */
function revealed(this: Readonly<Record<string, unknown>>, key: string, shown: unknown): unknown {
  const value = this[key]
  return value instanceof Secret ? value.reveal() : shown
}

/** Changes with every file that is written, replaced, or reached by a link that is swapped. */
async function versionOf(paths: readonly string[]): Promise<string> {
  const versions = await Promise.all(
    paths.map(async (path) =>
      fs.stat(path, { bigint: true }).then(
        ({ dev, ino, size, mtimeNs, ctimeNs }) => [dev, ino, size, mtimeNs, ctimeNs].join(':'),
        (error: unknown) => errorCode(error) ?? 'unknown',
      ),
    ),
  )
  return versions.join(' ')
}

async function read(load: () => Promise<Config>): Promise<OnDisk> {
  try {
    return { kind: 'loaded', config: await load() }
  } catch (error) {
    if (!(error instanceof UserError)) throw error
    return { kind: 'faulty', problem: error.message }
  }
}
