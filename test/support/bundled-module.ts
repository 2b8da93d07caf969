// A piece of src/lib bundled as it is shipped, in a directory of its own: only the packages that are put beside it are found.
import { mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { build } from 'esbuild'

/** `entry` imports from `./` of src/lib; `packages` are links to what is installed here. Returns the path of the program. */
export async function bundledModule(
  home: string,
  { entry, packages = [] }: { entry: string; packages?: readonly string[] },
): Promise<string> {
  const outfile = join(home, 'cli.mjs')
  await build({
    stdin: { contents: entry, resolveDir: new URL('../../src/lib', import.meta.url).pathname },
    bundle: true,
    format: 'esm',
    platform: 'node',
    external: ['koffi'],
    outfile,
  })
  const modules = join(home, 'node_modules')
  mkdirSync(modules)
  for (const name of packages)
    symlinkSync(new URL(`../../node_modules/${name}`, import.meta.url).pathname, join(modules, name))
  return outfile
}
