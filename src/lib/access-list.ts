// The access list of a path (acl(5)): what users and groups beside owner and mode may do there.
import { loadLibc } from './libc.ts'

/** What one entry permits, within the mask. */
interface AccessEntry {
  readonly kind: 'owner' | 'user' | 'owning group' | 'group' | 'others'
  /** Of a `user` or a `group`; null for the others. */
  readonly id: number | null
  /** Bits as in a mode: 4 read, 2 write, 1 enter. */
  readonly access: number
}
export type AccessList = readonly AccessEntry[]

const ATTRIBUTE = 'system.posix_acl_access'
/** `struct posix_acl_xattr_header` and `_entry` of include/uapi/linux/posix_acl_xattr.h. */
const HEADER_BYTES = 4
const ENTRY_BYTES = 8
const KINDS: Readonly<Record<number, AccessEntry['kind']>> = {
  0x01: 'owner',
  0x02: 'user',
  0x04: 'owning group',
  0x08: 'group',
  0x20: 'others',
}
const MASK = 0x10
/** What the kernel stores for an entry that has no id. */
const NO_ID = 0xff_ff_ff_ff
/** What is limited by the mask. */
const MASKED: ReadonlySet<AccessEntry['kind']> = new Set(['user', 'owning group', 'group'])

/** Null: there is none, so that the mode says all, or it cannot be read. A link is followed. */
export async function accessListOf(path: string): Promise<AccessList | null> {
  const bytes = await loadLibc().attributeOf(path, ATTRIBUTE)
  return bytes && parseAccessList(bytes)
}

function parseAccessList(bytes: Buffer): AccessList {
  const count = Math.floor((bytes.length - HEADER_BYTES) / ENTRY_BYTES)
  const raw = Array.from({ length: Math.max(count, 0) }, (_, index) => {
    const offset = HEADER_BYTES + index * ENTRY_BYTES
    return {
      tag: bytes.readUInt16LE(offset),
      bits: bytes.readUInt16LE(offset + 2),
      id: bytes.readUInt32LE(offset + 4),
    }
  })
  const mask = raw.find(({ tag }) => tag === MASK)?.bits ?? 7
  return raw.flatMap(({ tag, bits, id }) => {
    const kind = KINDS[tag]
    if (kind === undefined) return []
    return { kind, id: id === NO_ID ? null : id, access: MASKED.has(kind) ? bits & mask : bits }
  })
}
