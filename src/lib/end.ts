// The end of the process: nothing that cannot be cancelled holds it up.

/** What is still under way has so long to end by itself. */
const LOOK_MS = 500

/**
 * To be called when all work is done. Where name lookups still run then, the process ends without them, with
 * `process.exitCode`: nothing can cancel them, they take half a minute where no DNS server answers, and Node waits for
 * them even in `process.exit`. Without koffi it waits.
 */
export function endDespiteLookups(): void {
  const timer = setInterval(() => void endIfOnlyLookups(), LOOK_MS)
  timer.unref()
}

async function endIfOnlyLookups(): Promise<void> {
  if (!process.getActiveResourcesInfo().includes('GetAddrInfoReqWrap')) return
  if (process.stdout.writableLength > 0 || process.stderr.writableLength > 0) return
  const { loadLibc } = await import('./libc.ts')
  const libc = loadLibc()
  if (!('error' in libc)) libc.exitNow(Number(process.exitCode ?? 0))
}
