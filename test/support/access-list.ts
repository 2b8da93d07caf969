// Gives a path an access list, as systemd-tmpfiles or setfacl do. Needs python3: Node sets no extended attributes.
import { spawnSync } from 'node:child_process'

interface Entry {
  readonly tag: 'owner' | 'user' | 'owning group' | 'group' | 'mask' | 'others'
  readonly id?: number
  readonly bits: number
}

const TAGS = { owner: 1, user: 2, 'owning group': 4, group: 8, mask: 16, others: 32 } as const
const SCRIPT =
  'import os, sys; os.setxattr(sys.argv[1], "system.posix_acl_access", bytes.fromhex(sys.argv[2]))'

/** The entries in this order, as acl(5) wants it. */
export function setAccessList(path: string, entries: readonly Entry[]): void {
  const bytes = Buffer.alloc(4 + 8 * entries.length)
  bytes.writeUInt32LE(2)
  for (const [index, { tag, id = 0xff_ff_ff_ff, bits }] of entries.entries()) {
    bytes.writeUInt16LE(TAGS[tag], 4 + index * 8)
    bytes.writeUInt16LE(bits, 6 + index * 8)
    bytes.writeUInt32LE(id, 8 + index * 8)
  }
  const { status, stderr } = spawnSync('python3', ['-c', SCRIPT, path, bytes.toString('hex')], {
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error(stderr)
}

/** As tmpfiles.d gives it to the runtime directory: this user writes there beside the owner, others pass through. */
export function letWrite(path: string, ...ids: readonly number[]): void {
  setAccessList(path, [
    { tag: 'owner', bits: 7 },
    ...ids.map((id) => ({ tag: 'user', id, bits: 7 }) as const),
    { tag: 'owning group', bits: 5 },
    { tag: 'mask', bits: 7 },
    { tag: 'others', bits: 1 },
  ])
}
