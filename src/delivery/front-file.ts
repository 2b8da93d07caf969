// `token.front`: one line "VALID_FROM VALID_UNTIL TOKEN" for a shell that has to print the token without asking the daemon.
import { dirname, join } from 'node:path'
import type { TokenFileConfig } from '../config/config.ts'
import type { Log } from '../lib/log.ts'
import type { Keeper } from '../token/keeper.ts'
import { usableToken } from '../token/state.ts'
import { createDeliveredFile } from './delivered-file.ts'
import { keepFiles } from './token-files.ts'

export interface FrontFile {
  /** Keeps the file until the signal is aborted, and removes it then: without a daemon the shell must not answer. */
  run(signal: AbortSignal): Promise<void>
}

/**
 * The file stands beside the default token file (`token` in the runtime directory, `raw`), with its mode and group,
 * and only while everybody who may read that may also ask the daemon (`isOpen`: `ipc.allow` is empty). Otherwise one
 * that a former run left is removed.
 */
export function createFrontFile(options: {
  files: readonly TokenFileConfig[]
  runtimeDirectory: string
  isOpen: boolean
  keeper: Pick<Keeper, 'state' | 'now' | 'onEvent'>
  log: Log
}): FrontFile {
  const { keeper, log } = options
  const beside = join(options.runtimeDirectory, 'token')
  const config = options.files.find(({ path, format }) => path === beside && format === 'raw')
  let isShown = options.isOpen && config !== undefined
  const file = createDeliveredFile(
    { mode: 0o600, ...config, path: join(dirname(beside), 'token.front') },
    { wanted: () => (isShown ? frontLine(keeper) : null), now: () => keeper.now(), log },
  )
  return {
    async run(signal) {
      const hide = (): void => {
        isShown = false
      }
      if (signal.aborted) hide()
      signal.addEventListener('abort', hide)
      await keepFiles([file], { keeper, signal })
      signal.removeEventListener('abort', hide)
    },
  }
}

/**
 * In whole seconds of /proc/uptime, both rounded down: the reader compares its own seconds rounded down, so it never
 * takes a token for good that is not. A stale token has no line: whoever wants it asks the daemon.
 */
function frontLine(keeper: Pick<Keeper, 'state' | 'now'>): string | null {
  const now = keeper.now()
  const token = usableToken(keeper.state(), now)
  if (token === null) return null
  const until = Math.floor(token.expiresAtMs / 1000)
  if (now.bootMs >= until * 1000) return null
  return `${Math.floor(token.received.bootMs / 1000)} ${until} ${token.accessToken}\n`
}
