// Every order of acts up to a depth breaks no rule of the contract.
//
//   KYC_TOKEND_MODEL='1:4 2:3' vitest run --config test/vitest.process.config.ts test/model
//
// explores one host to depth 4 and two hosts that share to depth 3. What breaks a rule is shown with its
// shortest path.
import { expect, test } from 'vitest'
import { explore } from './explore.ts'

const runs = (process.env['KYC_TOKEND_MODEL'] ?? '1:3').split(' ').map((run) => run.split(':').map(Number))

test.each(runs)(
  '%i hosts to depth %i: every order of acts breaks no rule',
  { timeout: 900_000 },
  async (hosts, depth) => {
    const { user: startedUs } = process.cpuUsage()
    const { states, paths, broken } = await explore({ hosts, depth })
    const seconds = Math.round((process.cpuUsage().user - startedUs) / 1e6)
    process.stdout.write(`${hosts} hosts to depth ${depth}: ${states} states, ${paths} paths, ${seconds} s\n`)
    expect(broken).toEqual({})
  },
)
