// The cost of an idle daemon: its memory after this and that, and how often it wakes up.
import { setTimeout as sleep } from 'node:timers/promises'
import { privateBytes, wakeUps } from '../kernel.ts'
import { end, outputOf } from '../programs.ts'
import { contestants, type Contestant, type Samples } from '../rounds.ts'
import { differenceRow, forBoth, valueRow, type Row } from '../row.ts'
import { ask, startIpcTrio, type Trio, type World } from '../world.ts'

const REFRESHES = 1_000
const WAKE_UPS_WITHIN_MS = 60_000
const MIB = 1024 * 1024

/**
 * Started first and read last: they do nothing meanwhile, and that takes time. What goes on elsewhere on the machine
 * neither wakes them nor gives them memory.
 */
export async function leaveAlone(world: World): Promise<() => Promise<Row[]>> {
  const trio = await startIpcTrio(world, 'idle', { service: world.tlsService })
  for (const who of ['ours', 'sandboxed'] as const) await refresh(trio[who].path)
  const refreshedAtMs = performance.now()
  const memory = eachOf(trio, async ({ pid }) => {
    await sleep(refreshedAtMs + 60_000 - performance.now())
    return privateBytes(pid) / MIB
  })
  const wakes = eachOf(trio, async ({ pid }) => {
    // Until then it tidies up after the start and the refresh, later where the processors are busy.
    await sleep(45_000)
    const before = wakeUps(pid)
    const fromMs = performance.now()
    await sleep(WAKE_UPS_WITHIN_MS)
    return ((wakeUps(pid) - before) * 60_000) / (performance.now() - fromMs)
  })
  return async () => {
    const rows = [
      differenceRow(await memory, { what: 'memory 60 s after a refresh', unit: 'MiB', ...forBoth(5.5) }),
      // No bar by default: V8's threads, which compile what a tick runs, wake up more or less often.
      valueRow(await wakes, { what: 'wake-ups when idle, a minute', unit: '', sandboxedBar: { atMost: 8 } }),
    ]
    for (const who of contestants) await end(trio[who].process)
    return rows
  }
}

/** One sample of each, taken at the same time. */
async function eachOf(
  trio: Trio,
  measure: (server: Trio[Contestant]) => Promise<number>,
): Promise<Samples<number>> {
  const [ours = NaN, bare = NaN, sandboxed = NaN] = await Promise.all(
    contestants.map(async (who) => measure(trio[who])),
  )
  return { ours: [ours], bare: [bare], sandboxed: [sandboxed] }
}

async function refresh(path: string): Promise<void> {
  const answer = await ask(path, { type: 'refresh.request', data: { id: '1' } })
  if (!answer.includes('"ok"')) throw new Error(`A refresh failed: ${answer}`)
}

/** A thousand refreshes over TLS, one after the other; the bare server has none to make. */
export async function refreshedRow(
  world: World,
  progress: (what: string) => void,
): Promise<() => Promise<Row[]>> {
  progress(`${REFRESHES} refreshes`)
  const trio = await startIpcTrio(world, 'refreshed', { service: world.tlsService })
  const many = async (path: string): Promise<void> => {
    for (let count = 0; count < REFRESHES; count += 1) await refresh(path)
  }
  // Not at the same time: on two processors they would hold each other up, and V8 would compile more.
  for (const who of ['sandboxed', 'ours'] as const) await many(trio[who].path)
  return afterRest(trio, 'memory after 1,000 refreshes', 8)
}

/** The same load for each, and then rest. */
export async function loadedRow(
  world: World,
  progress: (what: string) => void,
): Promise<() => Promise<Row[]>> {
  progress('80,000 requests and 10,000 connections')
  const trio = await startIpcTrio(world, 'loaded')
  for (const who of contestants) {
    const { pid, path } = trio[who]
    await outputOf([world.load, 'requests', 'ipc', path, String(pid), '10000', '80000'])
  }
  return afterRest(trio, 'memory 20 s after 80,000 requests', 4)
}

const REST_MS = 20_000

function afterRest(trio: Trio, what: string, atMost: number): () => Promise<Row[]> {
  const memory = eachOf(trio, async ({ pid }) => {
    await sleep(REST_MS)
    return privateBytes(pid) / MIB
  })
  return async () => {
    const row = differenceRow(await memory, { what, unit: 'MiB', ...forBoth(atMost) })
    for (const who of contestants) await end(trio[who].process)
    return [row]
  }
}
