// An attacker: as user 65533 exchanges two names in a directory of its own as often as it can.
import { createRequire } from 'node:module'

interface Koffi {
  load(path: null): { func(definition: string): (...args: unknown[]) => number }
}
const [one = '', other = ''] = process.argv.slice(2)
const libc = (createRequire(import.meta.url)('koffi') as Koffi).load(null)
const renameat2 = libc.func('int renameat2(int, const char *, int, const char *, unsigned int)')
const AT_FDCWD = -100
const RENAME_EXCHANGE = 2

process.setgroups!([])
process.setgid!(65533)
process.setuid!(65533)
if (renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) !== 0) throw new Error('cannot exchange')
process.stdout.write('exchanging\n')
for (;;) renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE)
