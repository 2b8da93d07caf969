// A new token is pushed to very many subscribers: when the last one has it, and what a subscriber costs meanwhile.
import { setTimeout as sleep } from 'node:timers/promises'
import { cpuNs, privateBytes } from '../kernel.ts'
import { end, lineReader, start } from '../programs.ts'
import { contestants, interleaved, mapSamples, type Contestant, type Samples } from '../rounds.ts'
import { ratioRow, type Row } from '../row.ts'
import { startIpcTrio, type Server, type World } from '../world.ts'

const SUBSCRIBERS = 10_000
const PUSHES = 15
/** For what the connecting has left behind to be cleared away: a daemon looks every 15 s. */
const SETTLE_MS = 22_000

export async function subscriberRows(world: World, progress: (what: string) => void): Promise<Row[]> {
  const held: Samples<number> = { ours: [], bare: [], sandboxed: [] }
  const trio = await startIpcTrio(world, 'push', { isPushing: true })
  progress('10,000 subscribers')
  const crowds = {} as Record<Contestant, Crowd>
  const before = {} as Record<Contestant, number>
  for (const who of contestants) {
    before[who] = privateBytes(trio[who].pid)
    crowds[who] = await gather(world, trio[who])
  }
  await sleep(SETTLE_MS)
  for (const who of contestants)
    held[who].push((privateBytes(trio[who].pid) - before[who]) / SUBSCRIBERS / 1024)
  progress('a rotation pushed to 10,000 subscribers')
  const pushes = await interleaved(PUSHES, async (who) => {
    const cpuBefore = cpuNs(trio[who].pid)
    const ms = await crowds[who].push()
    return { ms, cpuUs: (cpuNs(trio[who].pid) - cpuBefore) / SUBSCRIBERS / 1_000 }
  })
  for (const who of contestants) {
    await crowds[who].leave()
    await end(trio[who].process)
  }
  return [
    ratioRow(
      mapSamples(pushes, ({ ms }) => ms),
      { what: 'rotation to 10,000 subscribers, the last', unit: 'ms', bar: { atMost: 1.3 } },
    ),
    ratioRow(
      mapSamples(pushes, ({ cpuUs }) => cpuUs),
      { what: '… CPU for each subscriber', unit: 'µs', bar: { atMost: 1.35 } },
    ),
    ratioRow(held, { what: '… memory for each idle one', unit: 'KiB' }),
  ]
}

interface Crowd {
  /** Has the server rotate: ms from the service's answer until the last subscriber has the new token. */
  push(): Promise<number>
  leave(): Promise<void>
}

async function gather(world: World, { pid, path }: Server): Promise<Crowd> {
  const program = start([world.load, 'subscribe', 'ipc', path, String(pid), String(SUBSCRIBERS)])
  const nextLine = lineReader(program)
  await nextLine()
  return {
    async push() {
      const arrived = world.service.arrived(world.service.requests.length + 1)
      program.stdin.write('\n')
      process.kill(pid, 'SIGUSR2')
      await arrived
      const answeredAtNs = process.hrtime.bigint()
      const { seen, lastAtNs } = JSON.parse(await nextLine()) as { seen: number; lastAtNs: string }
      if (seen !== SUBSCRIBERS) throw new Error(`Only ${seen} of ${SUBSCRIBERS} subscribers got the token`)
      return Number(BigInt(lastAtNs) - answeredAtNs) / 1e6
    },
    async leave() {
      await end(program)
    },
  }
}
