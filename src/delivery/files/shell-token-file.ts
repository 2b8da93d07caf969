// `token.front`: one line "VALID_FROM VALID_UNTIL TOKEN" for a shell that prints the token without asking the daemon.
import { join } from 'node:path'
import type { SocketConfig, TokenFileConfig } from '../../config/config.ts'
import type { Log } from '../../lib/log.ts'
import { createManagedFile, type ManagedFile } from '../../lib/managed-file.ts'
import type { Keeper } from '../../token/keeper.ts'
import { usableToken } from '../../token/state.ts'
import { isOpen } from '../peers.ts'

export interface ShellTokenFile extends Pick<ManagedFile, 'begin' | 'reconcile'> {
  /** From now on the file is to be absent: without a daemon the shell must not answer. */
  hide(): void
}

/**
 * The file lies beside the default token file (`token` in the runtime directory, `raw`), with its mode and group. It
 * is there only while everybody who may read that file may also ask the daemon (`ipc.allow` is empty).
 */
export function createShellTokenFile(options: {
  files: readonly TokenFileConfig[]
  runtimeDirectory: string
  ipc: Pick<SocketConfig, 'allow'>
  keeper: Pick<Keeper, 'state' | 'now'>
  log: Log
}): ShellTokenFile {
  const { keeper, log, runtimeDirectory, ipc } = options
  const tokenPath = join(runtimeDirectory, 'token')
  const config = options.files.find(({ path, format }) => path === tokenPath && format === 'raw')
  let isShown = isOpen(ipc.allow) && config !== undefined
  const file = createManagedFile(
    { mode: 0o600, ...config, path: join(runtimeDirectory, 'token.front') },
    { desired: () => (isShown ? shellLine(keeper) : null), log, isRevocable: true },
  )
  return {
    begin: async () => file.begin(),
    reconcile: async () => file.reconcile(),
    hide() {
      isShown = false
    },
  }
}

/**
 * In whole seconds of /proc/uptime, both rounded down: the reader compares its own seconds rounded down, so it never
 * takes an expired token for a good one. A stale token has no line: its readers ask the daemon.
 */
function shellLine(keeper: Pick<Keeper, 'state' | 'now'>): string | null {
  const now = keeper.now()
  const token = usableToken(keeper.state(), now)
  if (token === null) return null
  const until = Math.floor(token.expiresAtMs / 1000)
  if (now.bootMs >= until * 1000) return null
  return `${Math.floor(token.received.bootMs / 1000)} ${until} ${token.accessToken}\n`
}
