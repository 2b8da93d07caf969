// Compiles the functions of a start to code caches, in a process with the flags for which they are. JavaScript, because Node reads
// TypeScript by WebAssembly, which is not there with `--jitless`.
import { readFileSync, writeFileSync } from 'node:fs'
import { Session } from 'node:inspector'
import { join } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { Script } from 'node:vm'

const { id, directory, parts } = JSON.parse(readFileSync(0, 'utf8'))
const session = new Session()
session.connect()
const scriptIds = new Map()
session.on('Debugger.scriptParsed', ({ params }) => scriptIds.set(params.url, params.scriptId))
session.post('Debugger.enable')

const scripts = parts.map(({ source, filename, called }) => {
  const script = new Script(source, { filename })
  // Makes the module's function, without calling it: the inspector knows only scripts that were run.
  script.runInThisContext()
  const scriptId = scriptIds.get(filename)
  if (scriptId === undefined) throw new Error(`The inspector does not know ${filename}`)
  // In the order of the text, so that each build gives the same bytes.
  for (const end of called) compileFunction(scriptId, [source, end])
  return script
})
session.disconnect()

/** To say where a breakpoint could be, V8 compiles the functions that are there: here the one that ends there. */
function compileFunction(scriptId, [source, end]) {
  const lines = source.slice(0, end).split('\n')
  const lineNumber = lines.length - 1
  const columnNumber = lines[lineNumber].length
  session.post(
    'Debugger.getPossibleBreakpoints',
    {
      start: { scriptId, lineNumber, columnNumber: columnNumber - 1 },
      end: { scriptId, lineNumber, columnNumber },
    },
    (error) => {
      if (error) throw new Error(`A function of the start cannot be compiled: ${error.message}`)
    },
  )
}

// V8 notes its flags in a cache, and must not find this one, which is for the making only.
setFlagsFromString('--hash-seed=0')
for (const [index, { filename }] of parts.entries())
  writeFileSync(
    join(directory, filename),
    Buffer.concat([Buffer.from(id), scripts[index].createCachedData()]),
  )
