// Compiles sources to code caches, in a process with the flags for which they are. JavaScript, because Node reads TypeScript by
// WebAssembly, which is not there with `--jitless`.
import { readFileSync, writeFileSync } from 'node:fs'
import { setFlagsFromString } from 'node:v8'
import { Script } from 'node:vm'

const parts = JSON.parse(readFileSync(0, 'utf8'))
const scripts = parts.map(({ source, filename }) => new Script(source, { filename }))
// V8 notes its flags in a cache, and must not find these two, which are for the making only.
setFlagsFromString('--hash-seed=0')
setFlagsFromString('--lazy')
for (const [index, { id, target }] of parts.entries())
  writeFileSync(target, Buffer.concat([Buffer.from(id), scripts[index].createCachedData()]))
