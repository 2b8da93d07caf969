// The memory that clients can make the daemon hold: connections times the little that each may.

const KIB = 1024
const MIB = 1024 * KIB

/**
 * Held for one connection at worst: 64 KiB that were read at once, 16 KiB of unsent answers, 12 KiB in the kernel's send
 * buffer, and 4 KiB for the socket and its waiting requests (delivery/limits.ts).
 */
export const CONNECTION_BYTES = 96 * KIB
/** `MemoryMax=` of the service. */
const SERVICE_BYTES = 256 * MIB
/** Held by a daemon without clients. */
const IDLE_BYTES = 60 * MIB

/** One sentence where so many connections can hold more than the service's memory; null where they cannot. */
export function connectionMemoryProblem(
  sockets: readonly ({ readonly maxConnections: number } | null)[],
): string | null {
  const connections = sockets.reduce((sum, socket) => sum + (socket?.maxConnections ?? 0), 0)
  const heldMib = Math.ceil((connections * CONNECTION_BYTES + IDLE_BYTES) / MIB)
  if (heldMib * MIB <= SERVICE_BYTES) return null
  return (
    `${connections} connections (\`maxConnections\` of \`ipc\` and \`http\`) can hold ${heldMib} MiB, and the service has ` +
    `${SERVICE_BYTES / MIB} MiB: lower \`maxConnections\`, or raise MemoryMax= of the unit`
  )
}
