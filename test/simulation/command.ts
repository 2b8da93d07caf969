// The command `npm run simulate`: a fleet, an outage, and what the service sees of it, as numbers, or as a
// table and a plot.
import { parseArgs } from 'node:util'
import { parseDuration } from '../../src/lib/duration.ts'
import { simulate, type FleetNumbers, type Simulated } from './report.ts'

const USAGE = `Usage: npm run --silent simulate -- [--daemons 10000] [--outage 30m] [--outage-start boot|10m]
                                    [--token-life 1h] [--service-limit 200] [--seed 1] [--json]
`
const PLOT_STEP_MS = 15_000
const PLOT_STEPS = 40

/** What the command prints. Throws if an argument is unknown or no number or duration. */
export function simulateCommand(args: readonly string[]): string {
  const { values } = parseArgs({
    args: [...args],
    options: {
      daemons: { type: 'string', default: '10000' },
      outage: { type: 'string', default: '30m' },
      'outage-start': { type: 'string', default: 'boot' },
      'token-life': { type: 'string', default: '1h' },
      'service-limit': { type: 'string' },
      seed: { type: 'string', default: '1' },
      json: { type: 'boolean', default: false },
    },
  })
  const start = values['outage-start']
  const limit = values['service-limit']
  const options = {
    daemons: number('--daemons', Number(values.daemons)),
    outageMs: number('--outage', parseDuration(values.outage)),
    outageStartMs: start === 'boot' ? 0 : number('--outage-start', parseDuration(start)),
    tokenLifeMs: number('--token-life', parseDuration(values['token-life'])),
    serviceLimit: limit === undefined ? null : number('--service-limit', Number(limit)),
    seed: number('--seed', Number(values.seed)),
  }
  const asBuilt = simulate(options, { hasJitter: true })
  const without = simulate(options, { hasJitter: false })
  if (values.json) return `${JSON.stringify({ ...asBuilt.numbers, withoutJitter: without.numbers })}\n`
  const outageEndMs = options.outageStartMs + options.outageMs
  return [tableOf(asBuilt.numbers, without.numbers), ...plotsOf({ asBuilt, without }, outageEndMs)].join('\n')
}

function number(option: string, value: number | undefined): number {
  if (value === undefined || !Number.isSafeInteger(value) || value < 0)
    throw new Error(`${option} wants a whole number, or a duration such as "30m".`)
  return value
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
  const row = (...[label, ...cells]: [string, string, string]): string =>
    [label.padEnd(54), cells[0].padStart(10), cells[1].padStart(16), '\n'].join('')
  const rows = (Object.keys(labels) as (keyof FleetNumbers)[]).map((key) =>
    row(labels[key], String(numbers[key]), String(without[key])),
  )
  return [row('', 'as built', 'without jitter'), ...rows].join('')
}

/** The ten minutes around the end of the outage. One scale for both, so that they can be compared. */
function plotsOf(runs: { asBuilt: Simulated; without: Simulated }, outageEndMs: number): string[] {
  const fromMs = Math.max(0, outageEndMs - 300_000)
  const parts = [runs.asBuilt, runs.without].map(({ perSecond }) => {
    const fullest = Array.from({ length: PLOT_STEPS }, () => 0)
    for (const [second, count] of perSecond) {
      const part = Math.floor((second * 1_000 - fromMs) / PLOT_STEP_MS)
      if (part >= 0 && part < PLOT_STEPS) fullest[part] = Math.max(fullest[part] ?? 0, count)
    }
    return fullest
  })
  const scale = Math.max(1, ...parts.flat())
  return ['as built', 'without jitter'].map((name, index) => {
    const rows = parts[index]!.map((count, part) => {
      const second = String(Math.round((fromMs - outageEndMs + part * PLOT_STEP_MS) / 1_000)).padStart(6)
      return `${second} s ${'█'.repeat(Math.ceil((count / scale) * 60))} ${count}`
    })
    const title = `Requests in the fullest second of each 15 s, from the end of the outage; ${name}`
    return [title, ...rows, ''].join('\n')
  })
}

if (import.meta.main) {
  try {
    process.stdout.write(simulateCommand(process.argv.slice(2)))
  } catch (error) {
    process.stderr.write(`simulate: ${(error as Error).message}\n${USAGE}`)
    process.exitCode = 64
  }
}
