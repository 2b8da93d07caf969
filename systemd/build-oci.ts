// Makes the OCI image of what `npm run build` has made: dist/kyc-tokend_VERSION_amd64.oci.tar. It contains
// the Debian package and the libraries that its programs load, from this Debian.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { gzipSync } from 'node:zlib'

import manifest from '../package.json' with { type: 'json' }
import { fail, needCommands, step } from './build/say.ts'
import { sourceDate } from './build/source-date.ts'
import { createTree } from './build/tree.ts'
import { unitFiles } from './build/units.ts'

const { values: options } = parseArgs({
  options: {
    /** The bundled program. */
    program: { type: 'string', default: 'dist' },
    /** The directory that the image is written to. */
    out: { type: 'string', default: 'dist' },
  },
})

const project = path.dirname(import.meta.dirname)
const { version } = manifest
const changedAt = sourceDate(project)
/** The user of the image: no one of the host's. */
const USER = 65532
const PROGRAM = '/usr/lib/kyc-tokend'
/** Loaded by the C library when names are looked up; and the program by which `kyc-tokend exec` runs commands. */
const USED_LATER = [
  '/lib/x86_64-linux-gnu/libnss_dns.so.2',
  '/lib/x86_64-linux-gnu/libresolv.so.2',
  '/usr/bin/env',
]
/** Directories of the daemon's, with their modes. Where the root is read-only they are mounted. */
const OWN_DIRECTORIES = { 'run/kyc-tokend': 0o755, 'var/lib/kyc-tokend': 0o700 }
const MEDIA_TYPE = 'application/vnd.oci.image'

needCommands({ 'dpkg-deb': 'dpkg', 'dpkg-query': 'dpkg', ldd: 'libc-bin', tar: 'tar' })
process.umask(0o022)
const work = mkdtempSync(path.join(tmpdir(), 'kyc-tokend-oci-'))
try {
  const root = path.join(work, 'root')
  mkdirSync(root)
  addProgram(root)
  addSystem(root)
  const target = path.join(path.resolve(options.out), `kyc-tokend_${version}_amd64.oci.tar`)
  mkdirSync(path.dirname(target), { recursive: true })
  step('The image')
  writeImage(layerOf(root), target)
  process.stdout.write(`${target}\n`)
} finally {
  rmSync(work, { recursive: true, force: true })
}

function addProgram(root: string): void {
  const script = path.join(import.meta.dirname, 'build-deb.ts')
  const program = path.resolve(project, options.program)
  const words = [script, '--program', program, '--out', work, '--compression', 'none']
  execFileSync(process.execPath, words, { stdio: ['ignore', 'ignore', 'inherit'] })
  const parts = ['lib/kyc-tokend', 'share/kyc-tokend', 'share/doc/kyc-tokend'].map((part) => `./usr/${part}`)
  const ofUnits = ['alert', 'changed'].map((name) => `--exclude=.${PROGRAM}/${name}`)
  const unpack = 'dpkg-deb --fsys-tarfile "$0" | tar --extract --directory "$@"'
  const file = path.join(work, `kyc-tokend_${version}_amd64.deb`)
  execFileSync('sh', ['-ec', unpack, file, root, ...ofUnits, ...parts])
}

/** The least of a system: libraries, names of users, a way to look up hosts, commands that need no shell. */
function addSystem(root: string): void {
  const tree = createTree(root, project)
  for (const directory of ['lib', 'lib64']) {
    mkdirSync(tree.path(`usr/${directory}`), { recursive: true })
    symlinkSync(`usr/${directory}`, tree.path(directory))
  }
  const programs = ['node', 'node_modules/@koromix/koffi-linux-x64/koffi.node']
  const linked = programs.flatMap((file) => librariesOf(path.join(root, PROGRAM, file)))
  for (const used of new Set([...linked, ...USED_LATER])) {
    const file = used.replace(/^\/usr/, '')
    tree.add(`usr${file}`, { from: used, mode: statSync(used).mode & 0o777 })
    const copyright = copyrightOf(file)
    tree.add(copyright, { from: `/${copyright}` })
  }
  tree.add('usr/bin/kyc-tokend', { text: `#!${PROGRAM}/node\nrequire('${PROGRAM}/cli.cjs')\n`, mode: 0o755 })
  tree.add('usr/bin/kyc-tokend-probe', { from: 'systemd/oci/probe.cjs', mode: 0o755 })
  tree.add('etc/passwd', {
    text: `root:x:0:0:root:/:/nonexistent\nkyc-tokend:x:${USER}:${USER}:Token agent:/:/nonexistent\n`,
  })
  tree.add('etc/group', { text: `root:x:0:\nkyc-tokend:x:${USER}:\n` })
  tree.add('etc/nsswitch.conf', { text: 'passwd: files\ngroup: files\nhosts: files dns\n' })
  mkdirSync(tree.path('etc/kyc-tokend'))
  for (const [directory, mode] of Object.entries({ ...OWN_DIRECTORIES, tmp: 0o1777 })) {
    mkdirSync(tree.path(directory), { recursive: true })
    chmodSync(tree.path(directory), mode)
  }
}

function librariesOf(file: string): string[] {
  const lines = execFileSync('ldd', [file], { encoding: 'utf8' }).split('\n')
  return lines.flatMap((line) => /(?:=> |^\s*)(\/\S+) \(0x/.exec(line)?.[1] ?? [])
}

/** The licence of a file that Debian has in `/` or `/usr`, as a path from the root. */
function copyrightOf(used: string): string {
  const owners = execFileSync('dpkg-query', ['--search', `*${used}`], { encoding: 'utf8' })
  const [name = ''] = owners.split(':', 1)
  const file = `usr/share/doc/${name}/copyright`
  if (!existsSync(`/${file}`)) fail(`${used} belongs to no package of Debian with /${file}`)
  return file
}

/** The files as one archive, in order, with one date, owned by root or, where it writes, by the daemon. */
function layerOf(root: string): Buffer {
  const layer = path.join(work, 'layer.tar')
  const own = Object.keys(OWN_DIRECTORIES).map((directory) => `./${directory}`)
  tar(root, 0, ['--create', '--file', layer, ...own.map((directory) => `--exclude=${directory}`), '.'])
  tar(root, USER, ['--append', '--file', layer, ...own])
  return readFileSync(layer)
}

function tar(directory: string, owner: number, words: readonly string[]): void {
  const place = ['--directory', directory, `--owner=${owner}`, `--group=${owner}`, '--numeric-owner']
  const order = ['--format=ustar', '--sort=name', `--mtime=${changedAt.toISOString()}`]
  execFileSync('tar', [...place, ...order, ...words])
}

/** As in the image format specification: a layout of blobs that are named by their digest. */
function writeImage(layer: Buffer, target: string): void {
  const layout = path.join(work, 'layout')
  mkdirSync(path.join(layout, 'blobs/sha256'), { recursive: true })
  const addBlob = (mediaType: string, bytes: Buffer | string) => {
    const digest = digestOf(bytes)
    writeFileSync(path.join(layout, 'blobs', digest.replace(':', '/')), bytes)
    return { mediaType: `${MEDIA_TYPE}.${mediaType}`, digest, size: Buffer.byteLength(bytes) }
  }
  const image = {
    schemaVersion: 2,
    mediaType: `${MEDIA_TYPE}.manifest.v1+json`,
    config: addBlob('config.v1+json', JSON.stringify(configOf(digestOf(layer)))),
    layers: [addBlob('layer.v1.tar+gzip', gzipSync(layer))],
  }
  const named = {
    ...addBlob('manifest.v1+json', JSON.stringify(image)),
    annotations: { 'org.opencontainers.image.ref.name': version },
  }
  const index = { schemaVersion: 2, manifests: [named] }
  writeFileSync(path.join(layout, 'index.json'), JSON.stringify(index))
  writeFileSync(path.join(layout, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }))
  tar(layout, 0, ['--create', '--file', target, 'blobs', 'index.json', 'oci-layout'])
}

function configOf(layer: string): object {
  const created = changedAt.toISOString()
  return {
    created,
    architecture: 'amd64',
    os: 'linux',
    config: {
      User: `${USER}:${USER}`,
      Env: [
        'PATH=/usr/bin',
        'RUNTIME_DIRECTORY=/run/kyc-tokend',
        // The daemon makes it, with a mode of its own: where a volume is mounted, every user may write.
        'STATE_DIRECTORY=/var/lib/kyc-tokend/state',
        'UV_THREADPOOL_SIZE=16',
        'MALLOC_ARENA_MAX=1',
        'MALLOC_TRIM_THRESHOLD_=65536',
      ],
      Entrypoint: entrypoint(),
      Cmd: ['run'],
      WorkingDir: '/',
      StopSignal: 'SIGTERM',
      Labels: { 'org.opencontainers.image.title': 'kyc-tokend', 'org.opencontainers.image.version': version },
    },
    rootfs: { type: 'layers', diff_ids: [layer] },
    history: [{ created, created_by: 'npm run oci' }],
  }
}

/** Node with the flags of the unit. */
function entrypoint(): string[] {
  const words = /^ExecStart=(.*) run$/m.exec(unitFiles().get('kyc-tokend.service') ?? '')?.[1]?.split(' ')
  if (words === undefined) throw new Error('kyc-tokend.service has no ExecStart= that ends with run')
  return words
}

function digestOf(bytes: Buffer | string): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`
}
