// The command `npm run simulate`: a fleet, an outage, and what the service sees of it, as numbers, or as a table and a plot.
import { parseArgs } from 'node:util'
import { parseDuration } from '../../src/lib/duration.ts'
import { errorMessage } from '../../src/lib/error.ts'
import type { Arrival } from './fleet.ts'
import { perSecond, simulate, type FleetNumbers, type SimulationOptions } from './report.ts'
import { runShareFleet } from './share-fleet.ts'

const usage = `Usage: npm run --silent simulate -- [--daemons 10000] [--outage 30m] [--outage-start boot|10m]
                                    [--token-life 1h] [--service-limit 200] [--seed 1] [--json]
       npm run --silent simulate -- --share [--daemons 10000] [--store-outage 10m] [--token-life 1h] [--seed 1] [--json]`

const HOUR_MS = 3_600_000
const PLOT_STEP_MS = 15_000
/** Every request is kept: this many take about 1 GB and two minutes. */
const MAX_DAEMON_HOURS = 50_000
/** This many take a quarter of an hour. */
const MAX_SHARING_DAEMONS = 100_000

export interface Ended {
  readonly status: 0 | 64
  readonly stdout: string
  readonly stderr: string
}

/** A fault of the arguments. */
class UsageError extends Error {}

export async function simulateCommand(args: readonly string[]): Promise<Ended> {
  try {
    return { status: 0, stdout: `${await resultOf(args)}\n`, stderr: '' }
  } catch (error) {
    if (!(error instanceof UsageError)) throw error
    return { status: 64, stdout: '', stderr: `simulate: ${error.message}\n${usage}\n` }
  }
}

async function resultOf(args: readonly string[]): Promise<string> {
  const values = readArguments(args)
  if (values.help) return usage
  if (values.share) return simulateShare(values)
  const options: SimulationOptions = {
    daemons: whole('--daemons', values.daemons, 1),
    outageMs: durationMs('--outage', values.outage, ['1s', '24h']),
    outageStartMs:
      values['outage-start'] === 'boot'
        ? 0
        : durationMs('--outage-start', values['outage-start'], ['0s', '24h']),
    tokenLifeMs: durationMs('--token-life', values['token-life'], ['10s', '24h']),
    serviceLimit:
      values['service-limit'] === undefined ? null : whole('--service-limit', values['service-limit'], 1),
    seed: whole('--seed', values.seed, 0),
  }
  const daemonHours = (options.daemons * (options.outageStartMs + options.outageMs)) / HOUR_MS
  if (daemonHours > MAX_DAEMON_HOURS)
    throw new UsageError(
      `--daemons and --outage are too much together: at most ${MAX_DAEMON_HOURS} daemon-hours, not ${Math.ceil(daemonHours)}.`,
    )
  const withJitter = simulate(options, { hasJitter: true })
  const withoutJitter = simulate(options, { hasJitter: false })
  if (values.json) return JSON.stringify({ ...withJitter.numbers, withoutJitter: withoutJitter.numbers })
  const endMs = options.outageStartMs + options.outageMs
  const fromMs = Math.max(0, endMs - 300_000)
  const part = (arrivals: readonly Arrival[]): number[] =>
    fullestSeconds(
      arrivals.map(({ atMs }) => atMs - fromMs),
      { parts: 40, stepMs: PLOT_STEP_MS },
    )
  const asBuilt = part(withJitter.arrivals)
  const without = part(withoutJitter.arrivals)
  // One scale for both, so that they can be compared.
  const plot = {
    stepMs: PLOT_STEP_MS,
    fromS: (fromMs - endMs) / 1000,
    scale: Math.max(...asBuilt, ...without),
  }
  const title = ' of each 15 s, from the end of the outage; '
  return [
    tableOf(withJitter.numbers, withoutJitter.numbers),
    plotOf(asBuilt, { ...plot, title: `${title}as built` }),
    plotOf(without, { ...plot, title: `${title}without jitter` }),
  ].join('\n')
}

/** A fleet that shares one token, and loses the store for a while. */
async function simulateShare(values: ReturnType<typeof readArguments>): Promise<string> {
  const outageMs = durationMs('--store-outage', values['store-outage'], ['1s', '24h'])
  const daemons = whole('--daemons', values.daemons, 1)
  if (daemons > MAX_SHARING_DAEMONS)
    throw new UsageError(`--daemons with --share is at most ${MAX_SHARING_DAEMONS}, not ${daemons}.`)
  const { numbers, outageRequestsMs } = await runShareFleet({
    daemons,
    outageMs,
    tokenLifeMs: durationMs('--token-life', values['token-life'], ['10s', '24h']),
    seed: whole('--seed', values.seed, 0),
  })
  if (values.json) return JSON.stringify(numbers)
  const stepMs = outageMs / 20
  const fullest = fullestSeconds(outageRequestsMs, { parts: 20, stepMs })
  const row = (label: string, value: number): string => `${label.padEnd(58)}${String(value).padStart(8)}`
  return [
    row('requests for each rotation, while the store is there', numbers.requestsPerRotation),
    row('requests in the fullest second while it is gone', numbers.storeOutagePeakPerSecond),
    row('seconds without a token, of all hosts together', numbers.withoutTokenSeconds),
    '',
    plotOf(fullest, {
      title: ', from the loss of the store on',
      stepMs,
      fromS: 0,
      scale: Math.max(...fullest),
    }),
  ].join('\n')
}

function readArguments(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        daemons: { type: 'string', default: '10000' },
        outage: { type: 'string', default: '30m' },
        'outage-start': { type: 'string', default: 'boot' },
        'token-life': { type: 'string', default: '1h' },
        'service-limit': { type: 'string' },
        share: { type: 'boolean', default: false },
        'store-outage': { type: 'string', default: '10m' },
        seed: { type: 'string', default: '1' },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    }).values
  } catch (error) {
    throw new UsageError(errorMessage(error).split('\n')[0], { cause: error })
  }
}

function tableOf(numbers: FleetNumbers, without: FleetNumbers): string {
  const labels: Record<keyof FleetNumbers, string> = {
    meanPerSecond: 'requests/s, last 5 min of the outage',
    recoveryPeakPerSecond: 'requests in the fullest second after it',
    recoveredP50Seconds: 'seconds until half were served again',
    recoveredLastSeconds: 'seconds until the last was',
    requestsPerDaemonDuringOutage: 'requests per daemon during the outage',
    refreshPeakPerSecond: 'refreshes in the fullest second after a common start',
    requestsPerRefusedDaemon: 'requests of a refused daemon in a day',
  }
  const rows = (Object.keys(labels) as (keyof FleetNumbers)[]).map((key) =>
    [labels[key].padEnd(54), String(numbers[key]).padStart(10), String(without[key]).padStart(16)].join(''),
  )
  return [`${''.padEnd(54)}${'as built'.padStart(10)}${'without jitter'.padStart(16)}`, ...rows, ''].join(
    '\n',
  )
}

/** The requests in the fullest second of each of so many parts of the time. */
function fullestSeconds(
  instantsMs: readonly number[],
  { parts, stepMs }: { parts: number; stepMs: number },
): number[] {
  const fullest = Array.from({ length: parts }, () => 0)
  for (const [second, count] of perSecond(instantsMs)) {
    const part = Math.floor((second * 1000) / stepMs)
    if (part >= 0 && part < parts) fullest[part] = Math.max(fullest[part] ?? 0, count)
  }
  return fullest
}

/** A line for each part, with its first second. `scale`: the requests that the longest bar stands for. */
function plotOf(
  fullest: readonly number[],
  { title, stepMs, fromS, scale }: { title: string; stepMs: number; fromS: number; scale: number },
): string {
  const rows = fullest.map((count, part) => {
    const second = String(Math.round(fromS + (part * stepMs) / 1000)).padStart(6)
    return `${second} s ${'█'.repeat(Math.ceil((count / Math.max(scale, 1)) * 60))} ${count}`
  })
  return [`Requests in the fullest second${title}`, ...rows, ''].join('\n')
}

function durationMs(option: string, text: string, [least, most]: [string, string]): number {
  const ms = parseDuration(text)
  if (ms === undefined || ms < (parseDuration(least) ?? 0) || ms > (parseDuration(most) ?? Infinity))
    throw new UsageError(
      `${option} wants a duration from "${least}" to "${most}" such as "30m", not "${text}".`,
    )
  return ms
}
function whole(option: string, text: string, least: number): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value) || value < least)
    throw new UsageError(`${option} wants a whole number from ${least}, not "${text}".`)
  return value
}

if (import.meta.main) {
  const { status, stdout, stderr } = await simulateCommand(process.argv.slice(2))
  process.stdout.write(stdout)
  process.stderr.write(stderr)
  process.exitCode = status
}
