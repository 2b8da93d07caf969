// Lets root check with the rights of the service's user: the kernel itself decides.
import { groupsOf, localUser } from '../lib/posix-ids.ts'
import { serviceEnvironment } from '../lib/account.ts'

/** User that the service runs as. */
export const SERVICE_USER = 'kyc-tokend'

export interface Identity {
  /** Acting as the service's user, which this process was not started as. */
  readonly isElsewhere: boolean
  /** The environment that systemd would set for the service. */
  readonly env: NodeJS.ProcessEnv
}

/**
 * Acts with the effective ids of the service's user where root asks and there is such a user; as this process
 * elsewhere. `prepare` loads what is needed before the rights are given up: that user may not be able to read this
 * program. It reads nothing of the configuration.
 */
export async function asServiceUser<T>(
  { env, account }: { env: NodeJS.ProcessEnv; account: string | undefined },
  { prepare, act }: { prepare: () => Promise<unknown>; act: (identity: Identity) => Promise<T> },
): Promise<T> {
  const user = process.geteuid!() === 0 ? localUser(SERVICE_USER) : undefined
  if (user === undefined) return act({ isElsewhere: false, env: withCredentials(env, account) })
  await prepare()
  const before = { groups: process.getgroups!(), gid: process.getegid!() }
  process.setgroups!([user.gid, ...groupsOf(SERVICE_USER)])
  process.setegid!(user.gid)
  process.seteuid!(user.uid)
  try {
    return await act({ isElsewhere: true, env: { ...env, ...serviceEnvironment(account) } })
  } finally {
    process.seteuid!(0)
    process.setegid!(before.gid)
    process.setgroups!(before.groups)
  }
}

/** A reload's check runs in the service, and older systemd does not pass it the directory of the credentials. */
function withCredentials(env: NodeJS.ProcessEnv, account: string | undefined): NodeJS.ProcessEnv {
  if (env['RUNTIME_DIRECTORY'] === undefined || env['CREDENTIALS_DIRECTORY'] !== undefined) return env
  return { ...env, CREDENTIALS_DIRECTORY: serviceEnvironment(account)['CREDENTIALS_DIRECTORY'] }
}
