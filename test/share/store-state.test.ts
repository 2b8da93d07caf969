// A store that denies access stays denied while it hangs up, and each change is logged once.
import { expect, test } from 'vitest'
import { createStoreState, type StoreStateLog } from '../../src/share/store-state.ts'
import { StoreError } from '../../src/share/store.ts'
import { createLogRecorder, type LogRecorder } from '../support/log-recorder.ts'

function stateLog(): { state: StoreStateLog; events: LogRecorder['events']; pass: (ms: number) => void } {
  let nowMs = 1_000
  const { log, events } = createLogRecorder()
  const state = createStoreState({ server: 'store:6379', log, wallMs: () => nowMs, aclLine: 'ACL SETUSER' })
  return { state, events, pass: (ms) => (nowMs += ms) }
}
const denied = new StoreError('denied', 'WRONGPASS')
const lost = new StoreError('lost', 'the connection was closed')

test('a server that denies access and hangs up denies it, since the first time', () => {
  const { state, events, pass } = stateLog()
  state.connected()
  pass(1_000)
  state.failed(lost)
  pass(1_000)
  for (const error of [denied, lost, denied]) state.failed(error)
  expect(state.current()).toEqual({
    state: 'denied',
    since: '1970-01-01T00:00:02.000Z',
    lastError: 'WRONGPASS',
  })
  expect(events()).toEqual(['share-connected', 'share-lost', 'share-denied'])
})

test('one that is lost has its last reason', () => {
  const { state, events } = stateLog()
  state.failed(lost)
  state.failed(new StoreError('lost', 'connect ECONNREFUSED'))
  expect(state.current()).toMatchObject({ state: 'alone', lastError: 'connect ECONNREFUSED' })
  expect(events()).toEqual(['share-lost'])
})
