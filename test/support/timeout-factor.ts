// How long tests wait, by the speed that this machine has now: a busy machine is no fault of the program.
import { createHash } from 'node:crypto'
import { availableParallelism, loadavg } from 'node:os'

/** The work takes this long on two quiet cores, in ms. */
const QUIET_MS = 50
const VARIABLE = 'KYC_TOKEND_TIMEOUT_FACTOR'

/**
 * Limits of time are multiplied by it: 1 on a quiet machine, up to 10. The work is measured once for a whole run,
 * what waits for a core is read again for each file: others may begin meanwhile.
 */
export const timeoutFactor = Math.min(
  10,
  Math.max(Number((process.env[VARIABLE] ??= String(slowness()))), waiting()),
)

function slowness(): number {
  const block = Buffer.alloc(1 << 20)
  const startedAtMs = performance.now()
  const hash = createHash('sha256')
  for (let count = 0; count < 64; count += 1) hash.update(block)
  hash.digest()
  return Math.max(1, (performance.now() - startedAtMs) / QUIET_MS)
}

/** How many times as many as two for each core want to run. */
function waiting(): number {
  return (loadavg()[0] ?? 0) / availableParallelism() / 2
}
