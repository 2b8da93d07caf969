// The end of the process: name look-ups and disk calls, which nothing can cancel, do not hold it up.
import { UserError } from './error.ts'

/** Everything under way has so long to end by itself. */
const GRACE_MS = 500

/**
 * To be called when all work is done. Where only name look-ups or calls to a disk are still under way then, the process
 * ends without them, with `process.exitCode`: look-ups take half a minute where no DNS server answers, a disk that stalls
 * takes for ever, and Node waits for both even in `process.exit`. Without koffi it waits.
 */
export function exitIgnoringUncancellable(): void {
  setInterval(() => void exitIfOnlyUncancellable(), GRACE_MS).unref()
}

async function exitIfOnlyUncancellable(): Promise<void> {
  const isUncancellable = (type: string): boolean => type === 'GetAddrInfoReqWrap' || type.startsWith('FSReq')
  if (!process.getActiveResourcesInfo().some(isUncancellable)) return
  if (process.stdout.writableLength > 0 || process.stderr.writableLength > 0) return
  const { loadLibc } = await import('./libc.ts')
  try {
    loadLibc().exitNow(Number(process.exitCode ?? 0))
  } catch (error) {
    // Without libc it waits.
    if (!(error instanceof UserError)) throw error
  }
}
