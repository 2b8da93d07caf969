// A directory with configuration files for each test, with the modes they must have.
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach } from 'vitest'

import type { Config } from '../../src/config/config.ts'
import { ConfigError } from '../../src/config/faults.ts'
import { loadConfig } from '../../src/config/load.ts'

/** To be called outside of tests: the directory is made before each of them and removed after it. */
export function useConfigFiles() {
  let directory = ''
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'config-'))
  })
  afterEach(() => {
    rmSync(directory, { recursive: true, force: true })
  })
  /** Writes a file and gives its path. Objects are written as JSON. */
  function write(name: string, content: string | Buffer | object, mode = 0o600): string {
    const path = join(directory, name)
    mkdirSync(dirname(path), { recursive: true })
    const isText = typeof content === 'string' || Buffer.isBuffer(content)
    writeFileSync(path, isText ? content : JSON.stringify(content))
    chmodSync(path, mode)
    return path
  }
  /** Loads the least configuration with these settings. */
  async function load(settings: object, env: NodeJS.ProcessEnv = {}): Promise<Config> {
    const configPath = write('c.json', { ...smallConfig(), ...settings })
    return loadConfig({ configPath, env: { ...serviceEnv, ...env } })
  }
  return {
    get directory() {
      return directory
    },
    write,
    load,
    /** All that is said of these settings, which are refused. */
    refusal: async (settings: object) => (await refusalOf(load(settings))).message,
  }
}

/** The directories of a service. */
export const serviceEnv = {
  RUNTIME_DIRECTORY: '/run/kyc-tokend/files',
  STATE_DIRECTORY: '/var/lib/kyc-tokend',
}

/** The faults with which a configuration is refused (78). Rejects where it is not. */
export async function refusalOf(loading: Promise<unknown>): Promise<ConfigError> {
  const error = await loading.catch((thrown: unknown) => thrown)
  if (error instanceof ConfigError && error.status === 78) return error
  throw new Error('the configuration was not refused', { cause: error })
}

/** The least there can be in a configuration. */
export function smallConfig(): { baseUrl: string; credentials: Record<string, unknown> } {
  return { baseUrl: 'https://api.example.com', credentials: { apiKey: 'key-0815', apiSecret: 'secret-1' } }
}
