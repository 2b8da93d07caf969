// The rights that a host needs in the shared store, as the command that grants them.
import type { ShareConfig } from '../config/config.ts'

export type AclSettings = Pick<ShareConfig, 'user' | 'prefix' | 'database' | 'cluster'>

/** For `ACL SETUSER`: the commands, keys and channels of this prefix, and nothing else. */
export function aclLine({ user, prefix, database, cluster }: AclSettings): string {
  const commands =
    '-@all +ping +auth +hello +info +client +eval +evalsha +script +time +get +set +del +pttl +pexpire +hget +hset +hmget +publish +subscribe +unsubscribe'
  const more = [
    ...(database === 0 ? [] : ['+select']),
    ...(cluster ? ['+cluster|slots', '+cluster|info'] : []),
  ]
  const name = user ?? 'default'
  return `ACL SETUSER ${name} on >PASSWORD resetkeys ~${prefix}:1:* resetchannels &${prefix}:1:* ${[commands, ...more].join(' ')}`
}
