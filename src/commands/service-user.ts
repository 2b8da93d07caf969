// Lets root see what the service's user would see: the kernel itself judges, with that user's rights.
import { groupsOf, localUser } from '../config/accounts.ts'
import { SYSTEM_RUNTIME_DIRECTORY, SYSTEM_STATE_DIRECTORY } from '../lib/places.ts'

/** User that the service runs as. */
export const SERVICE_USER = 'kyc-tokend'
const SERVICE_CREDENTIALS = '/run/credentials/kyc-tokend.service'

export interface Viewpoint {
  /** Acting as the service's user, which this process was not started as. */
  readonly isElsewhere: boolean
  /** With what systemd would tell the service. */
  readonly env: NodeJS.ProcessEnv
}

/**
 * Acts with the effective ids of the service's user where root asks and there is such a user; as this process
 * elsewhere. `prepare` is called before the rights are given up: that user may not be able to read this program.
 */
export async function asServiceUser<T>(
  env: NodeJS.ProcessEnv,
  { prepare, act }: { prepare: () => Promise<unknown>; act: (viewpoint: Viewpoint) => Promise<T> },
): Promise<T> {
  const user = process.geteuid!() === 0 ? localUser(SERVICE_USER) : undefined
  if (user === undefined) return act({ isElsewhere: false, env: withCredentials(env) })
  await prepare()
  const before = { groups: process.getgroups!(), gid: process.getegid!() }
  process.setgroups!([user.gid, ...groupsOf(SERVICE_USER)])
  process.setegid!(user.gid)
  process.seteuid!(user.uid)
  try {
    return await act({ isElsewhere: true, env: asSystemd(env) })
  } finally {
    process.seteuid!(0)
    process.setegid!(before.gid)
    process.setgroups!(before.groups)
  }
}

function asSystemd(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return {
    ...env,
    RUNTIME_DIRECTORY: SYSTEM_RUNTIME_DIRECTORY,
    STATE_DIRECTORY: SYSTEM_STATE_DIRECTORY,
    CREDENTIALS_DIRECTORY: SERVICE_CREDENTIALS,
  }
}

/** A reload's check runs in the service, and older systemd does not tell it where the credentials are. */
function withCredentials(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  if (env['RUNTIME_DIRECTORY'] === undefined || env['CREDENTIALS_DIRECTORY'] !== undefined) return env
  return { ...env, CREDENTIALS_DIRECTORY: SERVICE_CREDENTIALS }
}
