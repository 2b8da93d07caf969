// How much memory all clients together may hold: beyond it the largest holder is shown out.

export interface Holder {
  /** What it holds, in bytes. Written by `hold` only. */
  held: number
  /** It holds too much: called after it was the largest. */
  onTooMuch(): void
}
export interface Holdings {
  /** The holder holds so many bytes now; 0 when it goes. */
  hold(holder: Holder, bytes: number): void
  totalBytes(): number
}

const LIMIT_BYTES = 32 * 1024 * 1024

export function createHoldings(limitBytes = LIMIT_BYTES): Holdings {
  const holders = new Set<Holder>()
  let total = 0

  function hold(holder: Holder, bytes: number): void {
    total += bytes - holder.held
    holder.held = bytes
    if (bytes === 0) holders.delete(holder)
    else holders.add(holder)
    if (total > limitBytes) showOutLargest()
  }

  function showOutLargest(): void {
    const [largest] = [...holders].toSorted((one, other) => other.held - one.held)
    if (largest === undefined) return
    hold(largest, 0)
    largest.onTooMuch()
  }

  return { hold, totalBytes: () => total }
}
