// The configuration of a daemon that lives in one directory and asks the stand-in of the service.
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { LogLevel } from '../lib/log.ts'
import { sandboxCredentials, type Sandbox } from './sandbox.ts'

/** Writes the file into the directory, which is also that of the sockets, and returns its path. */
export async function writeSandboxConfig(
  directory: string,
  { url, logLevel }: Pick<Sandbox, 'url'> & { logLevel: LogLevel },
): Promise<string> {
  const file = join(directory, 'kyc-tokend.config.json')
  const config = {
    baseUrl: url,
    credentials: sandboxCredentials,
    runtimeDirectory: directory,
    stateDirectory: join(directory, 'state'),
    log: { level: logLevel },
  }
  await writeFile(file, JSON.stringify(config, null, 2), { mode: 0o600 })
  return file
}
