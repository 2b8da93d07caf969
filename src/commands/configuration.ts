// The configuration that `run` and `check` are meant for: by --config, by --account, or by the environment.
import { ACCOUNT_VARIABLE, accountConfigPath, accountEnvironment, checkedAccount } from '../lib/account.ts'
import { UsageError } from '../lib/error.ts'
import type { Invocation } from './command.ts'

export interface Configuration {
  /** Undefined: the one that the search finds. */
  readonly configPath: string | undefined
  /** With the directories of the account. */
  readonly env: NodeJS.ProcessEnv
  readonly account: string | undefined
}

/** Throws UsageError (64) where a configuration and an account are named in the same way. */
export function configurationOf({ options, env }: Pick<Invocation, 'options' | 'env'>): Configuration {
  const { config, account } = options as { config?: string; account?: string }
  if (config !== undefined && account !== undefined) throw bothGiven('--config and --account')
  if (config !== undefined) return { configPath: config, env, account: undefined }
  const named = account ?? (env[ACCOUNT_VARIABLE] || undefined)
  if (named === undefined) return { configPath: undefined, env, account: undefined }
  if (account === undefined && env['KYC_TOKEND_CONFIG'])
    throw bothGiven(`$KYC_TOKEND_CONFIG and $${ACCOUNT_VARIABLE}`)
  const name = checkedAccount(named)
  const identity = { env, uid: process.geteuid!() }
  return { configPath: accountConfigPath(name), env: accountEnvironment(name, identity), account: name }
}

function bothGiven(names: string): UsageError {
  return new UsageError(`${names} are both given: leave one of them out.`)
}
