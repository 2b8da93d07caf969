// The files that former versions wrote (by their own programs, killed): 2.0.0's are gone on with, 1.2.0's are ignored.
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it, test } from 'vitest'
import { Secret } from '../../src/lib/secret.ts'
import { createStateStore } from '../../src/storage/state-store.ts'
import { parseSavedState, parseSavedToken } from '../../src/storage/saved-state.ts'
import { dueAtMs, phaseOf } from '../../src/token/state.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import of120 from './former/1.2.0.json' with { type: 'json' }
import of200 from './former/2.0.0.json' with { type: 'json' }

interface Written {
  readonly baseUrl: string
  readonly key: string
  readonly 'memory.json': string
  readonly 'kept.json'?: string
}
interface SavedAt {
  readonly at: { readonly bootMs: number; readonly wallMs: number }
  readonly bootId: string
}

/** Loads them a second after they were written, in the same boot. */
async function loaded(files: Written) {
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

describe('2.0.0', () => {
  it('keeps its token, for which the service is not asked', async () => {
    const { state, clock, ignored } = await loaded(of200.ok)
    const { facts } = parseSavedToken(of200.ok['kept.json'])!
    expect(state.token).toEqual(facts)
    expect(phaseOf(state, clock.now())).toBe('ready')
    expect(dueAtMs(state)).toBe(facts.refreshAtMs)
    expect(ignored).toEqual([])
  })

  it('keeps its refusal', async () => {
    const { state, clock, ignored } = await loaded(of200['account-inactive'])
    expect(phaseOf(state, clock.now())).toBe('refused')
    expect(state.objection).toEqual(
      parseSavedState(of200['account-inactive']['memory.json'])!.facts.objection,
    )
    expect(dueAtMs(state)).toBe(Infinity)
    expect(ignored).toEqual([])
  })

  it('keeps the wait that the service asked for', async () => {
    const { state, ignored } = await loaded(of200['rate-limited'])
    const { failure } = parseSavedState(of200['rate-limited']['memory.json'])!.facts
    expect(state.failure).toEqual(failure)
    expect(dueAtMs(state)).toBe(failure!.retryAtMs)
    expect(ignored).toEqual([])
  })
})

test.each(Object.entries(of120))(
  '1.2.0, %s: its files are ignored, and the service is asked',
  async (_, files) => {
    const { state, clock, ignored } = await loaded(files)
    expect(phaseOf(state, clock.now())).toBe('starting')
    expect(dueAtMs(state)).toBeLessThanOrEqual(clock.now().bootMs)
    expect(ignored).toHaveLength('kept.json' in files ? 2 : 1)
  },
)
