// Every order of acts up to a depth breaks no rule of the contract.
//
//   KYC_TOKEND_MODEL='1:4 2:3' vitest run --config test/vitest.process.config.ts test/model
//
// explores one host to depth 4 and two hosts that share to depth 3, with `:few` after it only by the acts that
// matter most. What breaks a rule is shown with its shortest path.
import { expect, test } from 'vitest'
import { explore } from './explore.ts'

const runs = (process.env['KYC_TOKEND_MODEL'] ?? '1:3').split(' ').map((run) => {
  const [hosts, depth, acts] = run.split(':')
  return { run, hosts: Number(hosts), depth: Number(depth), isFew: acts === 'few' }
})

test.each(runs)(
  '$run: every order of acts breaks no rule',
  { timeout: 900_000 },
  async ({ run, ...bounds }) => {
    const { user: startedUs } = process.cpuUsage()
    const { states, paths, broken } = await explore(bounds)
    const seconds = Math.round((process.cpuUsage().user - startedUs) / 1e6)
    process.stdout.write(`${run}: ${states} states, ${paths} paths, ${seconds} s\n`)
    expect(broken).toEqual({})
  },
)
