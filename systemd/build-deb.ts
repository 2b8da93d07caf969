// Makes the Debian package of what `npm run build` has made: dist/kyc-tokend_VERSION_ARCH.deb.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { gzipSync } from 'node:zlib'

import manifest from '../package.json' with { type: 'json' }
import { sbomFor, type Sbom } from '../src/build/sbom.ts'
import { configJsonSchema } from '../src/config/json-schema.ts'
import { notices } from './build/notices.ts'
import { ARCHITECTURES, runtimeFor } from './build/runtime.ts'
import { fail, needCommands, step } from './build/say.ts'
import { sourceDate } from './build/source-date.ts'
import { createTree } from './build/tree.ts'
import { unitFiles } from './build/units.ts'
import { shippedPath, withShippedLinks } from './build/shipped-links.ts'
import { manualPages } from './man/pages.ts'

const { values: options } = parseArgs({
  options: {
    /** The bundled program. */
    program: { type: 'string', default: 'dist' },
    /** The directory that the package is written to. */
    out: { type: 'string', default: 'dist' },
    /** Of dpkg-deb; `none` is for a trial: a larger package in a fraction of the time. */
    compression: { type: 'string', default: 'xz' },
    version: { type: 'string' },
    /** The processor: amd64 or arm64. */
    arch: { type: 'string', default: 'amd64' },
  },
})

const project = path.dirname(import.meta.dirname)
const version = options.version ?? manifest.version
const architecture =
  ARCHITECTURES.find((known) => known === options.arch) ?? fail(`--arch is ${ARCHITECTURES.join(' or ')}`)
needCommands({ 'dpkg-deb': 'dpkg' })
/** The distributor of the package is named as for Debian's own tools. */
const { DEBFULLNAME = 'The kyc-tokend authors', DEBEMAIL = 'kyc-tokend@localhost' } = process.env
const maintainer = `${DEBFULLNAME} <${DEBEMAIL}>`
const runtime = runtimeFor(architecture, project)
step(`Node ${runtime.nodeVersion} and koffi for ${architecture}`)
/** Directories of the package. */
const PROGRAM = 'usr/lib/kyc-tokend'
const DOCUMENTS = 'usr/share/doc/kyc-tokend'
const EXAMPLES = `${DOCUMENTS}/examples`
const changedAt = sourceDate(project)
/** The directory of what was built. */
const bundle = path.resolve(project, options.program)
if (!existsSync(path.join(bundle, 'cli.cjs')))
  fail(`There is no cli.cjs in ${bundle}: run \`npm run build\` first`)
process.umask(0o022)
const root = mkdtempSync(path.join(tmpdir(), 'kyc-tokend-deb-'))
const tree = createTree(root, project)
try {
  chmodSync(root, 0o755)
  step('The program')
  addProgram()
  step('Units, manual, completions')
  addUnits()
  addDocuments()
  addCompletions()
  addControl()
  const target = path.join(path.resolve(options.out), `kyc-tokend_${version}_${architecture}.deb`)
  mkdirSync(path.dirname(target), { recursive: true })
  step(`Its compression (${options.compression}; \`--compression none\` is for a trial)`)
  execFileSync('dpkg-deb', ['--root-owner-group', `-Z${options.compression}`, '--build', root, target], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, SOURCE_DATE_EPOCH: String(changedAt.getTime() / 1000) },
  })
  process.stdout.write(`${target}\n`)
} finally {
  rmSync(root, { recursive: true, force: true })
}

function addProgram(): void {
  tree.add(`${PROGRAM}/node`, { from: path.join(runtime.nodePackage, 'bin/node'), mode: 0o755 })
  for (const file of readdirSync(bundle))
    // They are run by the package's Node only, so they are no scripts.
    if (/\.c?js$/.test(file)) {
      const text = readFileSync(path.join(bundle, file), 'utf8')
      tree.add(`${PROGRAM}/${file}`, { text: text.replace(/^#!.*\n/, '') })
    }
  // The directory says that the client library is an ES module, and which version it is.
  tree.add(`${PROGRAM}/package.json`, {
    text: json({ name: 'kyc-tokend', version, type: 'module', private: true }),
  })
  const native = `${PROGRAM}/node_modules/${runtime.koffiName}`
  const { version: koffiVersion } = JSON.parse(
    readFileSync(path.join(runtime.koffiPackage, 'package.json'), 'utf8'),
  ) as { version: string }
  tree.add(`${native}/package.json`, {
    text: json({ name: runtime.koffiName, version: koffiVersion, main: 'koffi.node' }),
  })
  tree.add(`${native}/koffi.node`, { from: path.join(runtime.koffiPackage, runtime.koffiFile) })
  // `check` alone loads it, and the bundle has no part of it.
  const library = 'node_modules/systeminformation'
  const parts = readdirSync(source(`${library}/lib`)).filter(
    (file) => file.endsWith('.js') && file !== 'cli.js',
  )
  for (const file of ['package.json', ...parts.map((part) => `lib/${part}`)])
    tree.add(`${PROGRAM}/${library}/${file}`, { from: `${library}/${file}` })
  for (const script of ['alert', 'changed', 'directories'])
    tree.add(`${PROGRAM}/${script}`, { from: `systemd/${script}.sh`, mode: 0o755 })
  tree.add('usr/bin/kyc-tokend', { from: 'systemd/kyc-tokend.sh', mode: 0o755 })
  tree.add('usr/share/kyc-tokend/kyc-tokend.config.schema.json', { text: json(configJsonSchema()) })
}

function addUnits(): void {
  for (const [file, text] of unitFiles()) tree.add(`usr/lib/systemd/system/${file}`, { text })
  for (const kind of ['sysusers.d', 'tmpfiles.d'])
    tree.add(`usr/lib/${kind}/kyc-tokend.conf`, { from: `systemd/${kind}/kyc-tokend.conf` })
  mkdirSync(tree.path('etc/kyc-tokend'), { recursive: true })
}

function addDocuments(): void {
  for (const file of readdirSync(source('systemd/examples/services')))
    tree.add(`${EXAMPLES}/services/${file}`, { from: `systemd/examples/services/${file}` })
  for (const file of readdirSync(source('systemd/examples')).filter((name) => name !== 'services'))
    tree.add(`${EXAMPLES}/${file}`, {
      from: `systemd/examples/${file}`,
      mode: file === 'alert-command' ? 0o755 : 0o644,
    })
  const manual = readdirSync(source('systemd/man')).filter((file) => file.endsWith('.md'))
  for (const page of [
    ...manual.map((file) => `systemd/man/${file}`),
    'CHANGELOG.md',
    'README.md',
    'SECURITY.md',
  ])
    tree.add(`${DOCUMENTS}/${shippedPath(page)}`, { text: withShippedLinks(page, read(page)) })
  for (const folder of ['kubernetes', 'prometheus'])
    for (const file of readdirSync(source(`systemd/${folder}`)))
      tree.add(`${DOCUMENTS}/${folder}/${file}`, { from: `systemd/${folder}/${file}` })
  const example = JSON.parse(read('kyc-tokend.config.example.json')) as Record<string, unknown>
  tree.add(`${EXAMPLES}/kyc-tokend.config.json`, {
    text: json({
      ...example,
      $schema: 'file:///usr/share/kyc-tokend/kyc-tokend.config.schema.json',
      // For the group of the unit: the clients.
      tokenFiles: [{ path: 'token', format: 'raw', mode: '0640' }],
    }),
  })
  const news = read('systemd/debian/NEWS').replaceAll('@MAINTAINER@', maintainer)
  tree.add(`${DOCUMENTS}/NEWS.Debian.gz`, { bytes: gzip(news) })
  for (const { name, section, text } of manualPages(version, changedAt))
    tree.add(`usr/share/man/man${section}/${name}.${section}.gz`, { bytes: gzip(text) })
  const contains = `The package has Node.js and libraries, whose licences are in ${DOCUMENTS}/notices.gz.`
  tree.add(`${DOCUMENTS}/copyright`, { text: `kyc-tokend\n\n${read('LICENSE')}\n${contains}\n` })
  tree.add(`${DOCUMENTS}/notices.gz`, { bytes: gzip(notices(project, runtime.nodePackage)) })
  const sbom = JSON.parse(readFileSync(path.join(bundle, 'sbom.cdx.json'), 'utf8')) as Sbom
  tree.add(`${DOCUMENTS}/sbom.cdx.json`, { text: json(sbomFor(sbom, runtime.components)) })
  tree.add(`${DOCUMENTS}/changelog.gz`, {
    bytes: gzip(
      `kyc-tokend (${version}) stable; urgency=medium\n\n  * Release ${version}.\n\n -- ` +
        `${maintainer}  ${debianDate()}\n`,
    ),
  })
}

function addCompletions(): void {
  const words = [path.join(bundle, 'cli.cjs'), 'completions']
  const text = execFileSync(process.execPath, words, { encoding: 'utf8' })
  tree.add('usr/share/bash-completion/completions/kyc-tokend', { text })
}

function addControl(): void {
  const control = read('systemd/debian/control')
    .replace('@VERSION@', version)
    .replace('@ARCHITECTURE@', architecture)
    .replace('@MAINTAINER@', maintainer)
    .replace('@INSTALLED_SIZE@', String(tree.sizeKib()))
  tree.add('DEBIAN/control', { text: control })
  for (const script of ['postinst', 'prerm', 'postrm'])
    tree.add(`DEBIAN/${script}`, { from: `systemd/debian/${script}`, mode: 0o755 })
  tree.add('usr/share/lintian/overrides/kyc-tokend', { from: 'systemd/debian/lintian-overrides' })
  const sums = tree
    .files()
    .filter((file) => !file.startsWith('DEBIAN/'))
    .map((file) => `${md5Of(tree.path(file))}  ${file}\n`)
  tree.add('DEBIAN/md5sums', { text: sums.join('') })
}

function md5Of(file: string): string {
  return createHash('md5').update(readFileSync(file)).digest('hex')
}

/** As in RFC 5322, with a numeric zone. */
function debianDate(): string {
  return changedAt.toUTCString().replace('GMT', '+0000')
}

/** Debian wants the best compression, and no time stamp in it. */
function gzip(text: string): Buffer {
  return gzipSync(text, { level: 9 })
}

function json(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`
}
function read(file: string): string {
  return readFileSync(source(file), 'utf8')
}
function source(file: string): string {
  return path.join(project, file)
}
