// The request for a token as a configuration describes it, made without a daemon.
import type { Config } from '../../src/config/config.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { createFetchToken, type FetchTokenOptions } from '../../src/source/fetch-token.ts'
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
  return { outcome: await fetcherOf(config)(new AbortController().signal, { beforeRequest }), counted }
}
