// The request for a token as a configuration describes it, made without a daemon.
import type { Config } from '../../src/config/config.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { assertionReader, createFetchToken, type FetchTokenOptions } from '../../src/source/fetch-token.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'

/** The function that asks the service of this configuration. */
export function fetcherOf(config: Config, options: Partial<FetchTokenOptions> = {}) {
  return createFetchToken({
    ...config,
    env: {},
    clock: createSystemClock(),
    secrets: () => [],
    ...options,
  })
}

/** Asks once. Gives the outcome, and how many requests were counted before they went out. */
export async function askOnce(config: Config): Promise<{ outcome: ServiceOutcome; counted: number }> {
  let counted = 0
  const beforeRequest = async (): Promise<void> => void (counted += 1)
  const read = await assertionReader(config.pair)?.(Date.now())
  const assertion = read !== undefined && 'text' in read ? read.text : undefined
  const { signal } = new AbortController()
  return { outcome: await fetcherOf(config)(signal, { beforeRequest, assertion }), counted }
}
