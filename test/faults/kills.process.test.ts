// kill -9 at every instant of a rotation: no request too many, no file torn, and the token is served at once again.
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { textOf } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { tokenOf } from '../support/outside.ts'
import { join } from 'node:path'

const ROUNDS = 200
/** A rotation is over so long after the signal, or after its request, in ms. */
const ROTATION_MS = 40

const world = useDaemons()

test('200 rotations, killed at every instant', { timeout: 600_000 }, async () => {
  // A request that a kill has cut off is repeated after the test.
  const config = { retry: { initialDelay: '1m', maxDelay: '5m' } }
  const first = await world.started(config)
  await tokenOf(first)
  await first.end('SIGKILL')
  const cut = { before: 0, within: 0, after: 0 }
  for (let round = 0; round < ROUNDS; round += 1) {
    const daemon = await world.started(config)
    const asked = world.service.requests.length
    expect(world.given).toContain((await tokenOf(daemon, 'waitSeconds=0')).accessToken)
    daemon.process.kill('SIGUSR2')
    // Half of them are killed at some time after the signal, half after the request.
    if (round % 2 === 1) await world.service.arrived(asked + 1)
    await sleep((round * ROTATION_MS) / ROUNDS)
    await daemon.end('SIGKILL')
    const file = textOf(join(world.directory, 'run', 'token')) ?? ''
    expect([...world.given, '']).toContain(file)
    expect(world.service.requests.length - asked).toBeLessThanOrEqual(1)
    expect(daemon.records('state-file-ignored')).toEqual([])
    const isOver = daemon.records('token-obtained').length > 0
    cut[world.service.requests.length === asked ? 'before' : isOver ? 'after' : 'within'] += 1
  }
  process.stdout.write(`killed ${JSON.stringify(cut)}\n`)
  expect(Math.min(cut.before + cut.within, cut.after)).toBeGreaterThan(0)
  const asked = world.service.requests.length
  const last = await world.started(config)
  expect(world.given).toContain((await tokenOf(last, 'waitSeconds=0')).accessToken)
  expect(world.service.requests).toHaveLength(asked)
})
