// The files that 2.0.0 wrote (by its own program, killed) are gone on with.
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, test } from 'vitest'
import { Secret } from '../../src/lib/secret.ts'
import { createStateStore } from '../../src/storage/state-store.ts'
import { parseSavedState, parseSavedToken } from '../../src/storage/saved-state.ts'
import { dueAtMs, phaseOf } from '../../src/token/state.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import of200 from './2.0.0.json' with { type: 'json' }

interface SavedAt {
  readonly at: { readonly bootMs: number; readonly wallMs: number }
  readonly bootId: string
}

/** Loads them a second after they were written, in the same boot. */
async function loaded(files: Omit<typeof of200.ok, 'kept.json'> & { 'kept.json'?: string }) {
  const [runtimeDirectory, directory] = [await tempDirectory('memory'), await tempDirectory()]
  const stateDirectory = path.join(directory, 'state')
  await mkdir(stateDirectory, { mode: 0o700 })
  const { written } = JSON.parse(files['memory.json']) as { written: SavedAt }
  const bootIdFile = path.join(directory, 'boot_id')
  await writeFile(bootIdFile, written.bootId)
  const clock = createFakeClock({ wallMs: written.at.wallMs + 1_000, bootMs: written.at.bootMs + 1_000 })
  for (const [folder, name] of [
    [stateDirectory, 'key'],
    [stateDirectory, 'memory.json'],
    [runtimeDirectory, 'kept.json'],
  ] as const)
    if (files[name] !== undefined) await writeFile(path.join(folder, name), files[name], { mode: 0o600 })
  const { log, of } = createRecords()
  const store = await createStateStore({ runtimeDirectory, stateDirectory, clock, log, bootIdFile })
  const credentials = { apiKey: new Secret('sandbox-key'), apiSecret: new Secret('sandbox-secret') }
  const { baseUrl } = files
  const state = await store.load({ baseUrl, credentialsId: store.credentialsIdOf(baseUrl, credentials) })
  return { state, clock, ignored: of('state-file-ignored') }
}

test('its token is kept, and the service is not asked', async () => {
  const { state, clock, ignored } = await loaded(of200.ok)
  const { facts } = parseSavedToken(of200.ok['kept.json'])!
  expect(state.token).toEqual(facts)
  expect([phaseOf(state, clock.now()), dueAtMs(state), ignored]).toEqual(['ready', facts.refreshAtMs, []])
})

test('its refusal and the wait that the service asked for are kept', async () => {
  const refused = await loaded(of200['account-inactive'])
  const { objection } = parseSavedState(of200['account-inactive']['memory.json'])!.facts
  expect(refused.state.objection).toEqual(objection)
  expect([phaseOf(refused.state, refused.clock.now()), dueAtMs(refused.state)]).toEqual(['refused', Infinity])
  const waiting = await loaded(of200['rate-limited'])
  const { failure } = parseSavedState(of200['rate-limited']['memory.json'])!.facts
  expect(waiting.state.failure).toEqual(failure)
  expect(dueAtMs(waiting.state)).toBe(failure!.retryAtMs)
  expect([refused.ignored, waiting.ignored]).toEqual([[], []])
})
