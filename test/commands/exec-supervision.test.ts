import { expect, test } from 'vitest'
import {
  nextSupervision,
  startedWith,
  type Supervision,
  type SupervisionAction,
  type SupervisionEvent,
  type SupervisionSettings,
} from '../../src/commands/exec-parent.ts'

const restart: SupervisionSettings = {
  stopSignal: 'SIGTERM',
  onChange: 'restart',
  splayMs: 4_000,
  stopTimeoutMs: 10_000,
  minBetweenMs: 30_000,
}
const token = (fingerprint: string): SupervisionEvent => ({ type: 'token', fingerprint })
const wake: SupervisionEvent = { type: 'wake' }
const exited: SupervisionEvent = { type: 'exited' }
const end: SupervisionEvent = { type: 'end' }

/** A command that was started with the token `a` at 0; half of the splay is drawn. */
function supervised(settings: SupervisionSettings = restart): {
  state: () => Supervision
  at: (nowMs: number, event: SupervisionEvent) => SupervisionAction | undefined
} {
  let state = startedWith('a', 0)
  return {
    state: () => state,
    at(nowMs, event) {
      const step = nextSupervision(state, event, { settings, nowMs, randomUnit: 0.5 })
      state = step.state
      return step.action
    },
  }
}

test('a change is due after the splay, and not before the time between two restarts is over', () => {
  const { state, at } = supervised()
  expect(at(1_000, token('b'))).toBeUndefined()
  expect(state()).toMatchObject({ phase: 'due', wakeAtMs: 30_000 })
  expect(at(30_000, wake)).toBe('stop')
  expect(state()).toMatchObject({ phase: 'stopping', wakeAtMs: 40_000 })
  expect(at(31_000, exited)).toBe('start')
  expect(at(100_000, token('c'))).toBeUndefined()
  expect(state()).toMatchObject({ phase: 'due', wakeAtMs: 102_000 })
})

test('changes count once, whether they come before the stop or during it', () => {
  const { state, at } = supervised()
  for (const [index, name] of ['b', 'c', 'd'].entries()) at(40_000 + index * 500, token(name))
  expect(state().wakeAtMs).toBe(42_000)
  expect(at(42_000, wake)).toBe('stop')
  for (const name of ['e', 'f']) expect(at(43_000, token(name))).toBeUndefined()
  expect(at(44_000, exited)).toBe('start')
  expect(state()).toEqual({ phase: 'running', known: 'f', newest: 'f', actedAtMs: 44_000 })
})

test('the token that the command has causes nothing, also when it comes back before the restart', () => {
  const { state, at } = supervised()
  at(1_000, token('a'))
  expect(state().phase).toBe('running')
  at(2_000, token('b'))
  at(3_000, token('a'))
  expect(state()).toEqual(startedWith('a', 0))
})

test('a signal is sent once for each change, and the command runs on', () => {
  const { state, at } = supervised({ ...restart, onChange: 'SIGHUP' })
  at(50_000, token('b'))
  expect(at(52_000, wake)).toBe('signal')
  expect(state()).toEqual(startedWith('b', 52_000))
  expect(at(53_000, token('b'))).toBeUndefined()
  expect(at(54_000, exited)).toBe('exit')
})

test('a stop that takes too long is a kill, also when the stop became one for good', () => {
  for (const isForGood of [false, true]) {
    const { state, at } = supervised()
    at(50_000, token('b'))
    at(52_000, wake)
    if (isForGood) at(53_000, end)
    expect(state().wakeAtMs).toBe(62_000)
    expect(at(62_000, wake)).toBe('kill')
    expect(state().wakeAtMs).toBeUndefined()
    expect(at(62_001, exited)).toBe(isForGood ? 'exit' : 'start')
  }
})

test('after an end nothing is restarted, and nothing is done after the exit', () => {
  const { state, at } = supervised()
  at(50_000, token('b'))
  at(50_500, end)
  expect(state()).not.toHaveProperty('wakeAtMs')
  at(51_000, token('c'))
  expect(at(52_000, exited)).toBe('exit')
  expect(at(53_000, token('d'))).toBeUndefined()
  expect(state().phase).toBe('ended')
})
