// The command `npm run simulate`: a fleet, an outage, and what the service sees of it, as JSON or as a table.
import { parseArgs } from 'node:util'
import { parseDuration } from '../../src/lib/duration.ts'
import { simulate, type FleetNumbers } from './fleet.ts'

const USAGE = `Usage: npm run --silent simulate -- [--daemons 10000] [--outage 30m] [--outage-start boot|10m]
                                    [--token-life 1h] [--service-limit 200] [--seed 1] [--json]
`
const LABELS: Readonly<Record<keyof FleetNumbers, string>> = {
  meanPerSecond: 'requests/s, last 5 min of the outage',
  recoveryPeakPerSecond: 'requests in the fullest second after it',
  recoveredP50Seconds: 'seconds until half were served again',
  recoveredLastSeconds: 'seconds until the last was',
  requestsPerDaemonDuringOutage: 'requests per daemon during the outage',
  refreshPeakPerSecond: 'refreshes in the fullest second after a common start',
  requestsPerRefusedDaemon: 'requests of a refused daemon in a day',
}

/** What the command prints. Throws if an argument is unknown or no number or duration. */
export function simulateCommand(args: readonly string[]): string {
  const text = (value: string) => ({ type: 'string', default: value }) as const
  const { values } = parseArgs({
    args: [...args],
    options: {
      daemons: text('10000'),
      outage: text('30m'),
      'outage-start': text('boot'),
      'token-life': text('1h'),
      'service-limit': { type: 'string' },
      seed: text('1'),
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
  const { numbers: asBuilt, perMinute } = simulate(options, { hasJitter: true })
  const { numbers: withoutJitter } = simulate(options, { hasJitter: false })
  if (values.json) return `${JSON.stringify({ ...asBuilt, withoutJitter })}\n`
  const row = (label: string, ...[left, right]: [string, string]): string =>
    `${label.padEnd(54)}${left.padStart(10)}${right.padStart(16)}\n`
  const rows = (Object.keys(LABELS) as (keyof FleetNumbers)[]).map((key) =>
    row(LABELS[key], String(asBuilt[key]), String(withoutJitter[key])),
  )
  return [row('', 'as built', 'without jitter'), ...rows, '\n', plotOf(perMinute)].join('')
}

/** The requests of each minute, as bars. */
function plotOf(perMinute: ReadonlyMap<number, number>): string {
  const most = Math.max(...perMinute.values())
  const lines = Array.from({ length: Math.max(...perMinute.keys()) + 1 }, (_, minute) => {
    const count = perMinute.get(minute) ?? 0
    const bar = '#'.repeat(Math.ceil((60 * count) / most))
    return `${String(minute).padStart(4)}${String(count).padStart(10)} ${bar}\n`
  })
  return ['minute  requests\n', ...lines].join('')
}

function number(option: string, value: number | undefined): number {
  if (value === undefined || !Number.isSafeInteger(value) || value < 0)
    throw new Error(`${option} wants a whole number, or a duration such as "30m".`)
  return value
}

if (import.meta.main) {
  try {
    process.stdout.write(simulateCommand(process.argv.slice(2)))
  } catch (error) {
    process.stderr.write(`simulate: ${(error as Error).message}\n${USAGE}`)
    process.exitCode = 64
  }
}
