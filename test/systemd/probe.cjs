// Run in the daemon's sandbox instead of the daemon: tries what is forbidden there and prints what came of it.
const { execFileSync } = require('node:child_process')
const fs = require('node:fs')
const { constants, tmpdir } = require('node:os')
const koffi = require('@koromix/koffi-linux-x64')

const libc = koffi.load(null)
const syscall = libc.func('long syscall(long, long, long, long, long, long, long)')
const mmap = libc.func('long mmap(long, long, int, int, int, long)')
const mprotect = libc.func('int mprotect(long, long, int)')
const names = Object.fromEntries(Object.entries(constants.errno).map(([name, number]) => [number, name]))
const found = {}

function attempt(what, act) {
  try {
    const result = act()
    found[what] = result === -1 ? (names[koffi.errno()] ?? koffi.errno()) : 'allowed'
  } catch (error) {
    found[what] = error.code ?? error.name
  }
}
const executeIn = (folder) => () => {
  // A program that may be executed runs it: the folder alone decides.
  fs.writeFileSync(`${folder}/probe`, '#!/usr/lib/kyc-tokend/node --version\n', { mode: 0o755 })
  try {
    execFileSync(`${folder}/probe`)
  } finally {
    fs.unlinkSync(`${folder}/probe`)
  }
}
const write = (file) => () => {
  fs.writeFileSync(file, '')
  fs.unlinkSync(file)
}

attempt('execute /usr/bin/true', () => execFileSync('/usr/bin/true'))
for (const folder of ['/run/kyc-tokend/files', '/var/lib/kyc-tokend', '/tmp'])
  attempt(`execute in ${folder}`, executeIn(folder))
for (const folder of ['/etc/kyc-tokend', '/run', '/run/kyc-tokend', '/run/kyc-tokend/files'])
  attempt(`write ${folder}/x`, write(`${folder}/x`))
for (const folder of ['/var/lib', '/var/lib/kyc-tokend']) attempt(`write ${folder}/x`, write(`${folder}/x`))
attempt('look at process 1', () => fs.readFileSync('/proc/1/status'))
// PROT_READ 1, PROT_WRITE 2, PROT_EXEC 4; MAP_PRIVATE 2, MAP_ANONYMOUS 32.
attempt('writable and executable memory', () => mmap(0, 4096, 7, 34, -1, 0))
attempt('executable memory later', () => mprotect(mmap(0, 4096, 3, 34, -1, 0), 4096, 5))
// System calls by their numbers on x86-64: setuid 105, unshare 272.
attempt('setuid(0)', () => Number(syscall(105, 0, 0, 0, 0, 0, 0)))
attempt('a user namespace', () => Number(syscall(272, 0x10000000, 0, 0, 0, 0, 0)))
attempt('a set-user-id file', () => {
  const file = `${tmpdir()}/probe`
  fs.writeFileSync(file, '')
  fs.chmodSync(file, 0o4755)
})
process.stdout.write(`${JSON.stringify(found)}\n`)
