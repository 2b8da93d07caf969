import { execFileSync, spawnSync } from 'node:child_process'
import { chownSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { PROGRAM } from '../support/daemon.ts'
import { lacks } from '../support/lacks.ts'
import { startProgram } from '../support/run-cli.ts'
import { expectUntil } from '../support/until.ts'

// The image, unpacked and run by root with the tools of Debian, with nothing that a container needs not have.
const programs = ['dpkg-deb', 'jq', 'ldd', 'skopeo', 'umoci', 'crun', 'unshare']
const isLeftOut = process.getuid?.() !== 0 || lacks(...programs)

const USER = 65532
const ID = `kyc-tokend-test-${process.pid}`
const [node, program] = PROGRAM

describe.skipIf(isLeftOut && process.env['KYC_TOKEND_REQUIRE_SYSTEMD'] !== '1')('the OCI image', () => {
  let work: string
  let image: string
  const inWork = (...names: string[]): string => path.join(work, ...names)
  const build = (name: string): string => {
    const script = path.resolve(import.meta.dirname, '../../systemd/build-oci.ts')
    const words = [script, '--program', path.dirname(program), '--out', inWork(name)]
    return execFileSync(process.execPath, words, { encoding: 'utf8' }).trim()
  }
  beforeAll(() => {
    work = mkdtempSync(path.join(tmpdir(), 'kyc-tokend-test-'))
    image = build('first')
  })
  afterAll(() => {
    rmSync(work, { recursive: true, force: true })
  })

  /** crun refuses a machine with both hierarchies of control groups: it gets the unified one. */
  function crun(...args: string[]): [string, string[]] {
    const script = 'mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec crun --cgroup-manager=disabled "$@"'
    return ['unshare', ['--mount', 'sh', '-euc', script, 'sh', '--root', inWork('state'), ...args]]
  }
  const inside = (...command: string[]): { status: number | null; stdout: string; stderr: string } =>
    spawnSync(...crun('exec', '--user', `${USER}:${USER}`, ID, ...command), { encoding: 'utf8' })

  it('is the same when it is built again, can be read by other tools, and has the licences of its libraries', () => {
    expect(readFileSync(build('second')).equals(readFileSync(image))).toBe(true)
    const inspect = ['inspect', '--config', `oci-archive:${image}`]
    expect(JSON.parse(execFileSync('skopeo', inspect, { encoding: 'utf8' }))).toMatchObject({
      architecture: 'amd64',
      os: 'linux',
      config: { User: `${USER}:${USER}`, Cmd: ['run'], StopSignal: 'SIGTERM' },
    })
    const layout = `${inWork('layout')}:test`
    execFileSync('skopeo', ['copy', '--quiet', `oci-archive:${image}`, `oci:${layout}`])
    execFileSync('umoci', ['unpack', '--image', layout, inWork('bundle')], { stdio: 'ignore' })
    const isThere = (file: string): boolean => existsSync(inWork('bundle/rootfs', file))
    for (const name of ['kyc-tokend', 'libc6', 'libstdc++6', 'libgcc-s1'])
      expect(isThere(`usr/share/doc/${name}/copyright`), name).toBe(true)
    for (const absent of ['bin/sh', 'usr/bin/sh', 'usr/lib/kyc-tokend/alert'])
      expect(isThere(absent), absent).toBe(false)
  })

  it('serves the token on a read-only root, without any capability', { timeout: 120_000 }, async () => {
    const [configuration, run] = [inWork('configuration'), inWork('run')]
    for (const directory of [configuration, run]) mkdirSync(directory)
    chownSync(run, USER, USER)
    const standIn = startProgram([node, program, 'sandbox', '--port', '0'])
    onTestFinished(() => void standIn.child.kill())
    const address = /http:\/\/127\.0\.0\.1:\d+/
    const baseUrl = await expectUntil('the stand-in', () => address.exec(standIn.stdout())?.[0])
    const credentials = { apiKey: { file: 'api-key' }, apiSecret: { file: 'api-secret' } }
    const settings = { baseUrl, credentials, tokenFiles: [{ path: 'token', mode: '0640' }] }
    const files = { 'api-key': 'sandbox-key', 'api-secret': 'sandbox-secret' }
    // As a secret is mounted: root's, for the daemon's group.
    for (const [name, text] of Object.entries({
      ...files,
      'kyc-tokend.config.json': JSON.stringify(settings),
    })) {
      writeFileSync(path.join(configuration, name), text, { mode: 0o440 })
      chownSync(path.join(configuration, name), 0, USER)
    }
    const owned = ['nosuid', 'nodev', 'mode=0700', `uid=${USER}`, `gid=${USER}`]
    const tmpfs = { type: 'tmpfs', source: 'tmpfs', options: owned }
    const mounts = [
      { destination: '/etc/kyc-tokend', type: 'none', source: configuration, options: ['bind', 'ro'] },
      { destination: '/run/kyc-tokend', type: 'none', source: run, options: ['bind', 'rw'] },
      { destination: '/var/lib/kyc-tokend', ...tmpfs },
      { destination: '/tmp', ...tmpfs },
    ]
    // umoci writes a hard limit of 1,024 files, for which the daemon warns; that of engines is higher. The stand-in is
    // on this host's loopback.
    const change = `.root = { path: "rootfs", readonly: true }
      | .process += { terminal: false, noNewPrivileges: true, capabilities: {} }
      | .process.rlimits = [{ type: "RLIMIT_NOFILE", soft: 1024, hard: 4096 }]
      | .mounts += ${JSON.stringify(mounts)}
      | .linux.namespaces |= map(select(.type != "network"))`
    const file = inWork('bundle/config.json')
    writeFileSync(file, execFileSync('jq', [change, file]))

    const { child, stderr, ended } = startProgram(crun('run', '--bundle', inWork('bundle'), ID).flat())
    onTestFinished(() => void spawnSync(...crun('delete', '--force', ID)))
    await expectUntil('readiness', () => {
      if (child.exitCode !== null) throw new Error(`The container has ended: ${stderr()}`)
      return inside('kyc-tokend-probe', 'readyz').status === 0
    })
    expect(inside('kyc-tokend-probe', 'healthz').status).toBe(0)
    expect(inside('kyc-tokend-probe', 'nothing').status).toBe(1)
    expect(inside('kyc-tokend', 'status').status).toBe(0)
    const token = readFileSync(path.join(run, 'token'), 'utf8')
    expect(inside('kyc-tokend', 'token').stdout).toBe(`${token}\n`)
    // From another container that shares the volume: here, this host.
    const words = [program, 'token', '--socket', path.join(run, 'ipc.sock')]
    expect(execFileSync(node, words, { encoding: 'utf8' })).toBe(`${token}\n`)
    const asUser = ['exec', '--', '/usr/lib/kyc-tokend/node', '-p', 'process.getuid()']
    expect(inside('kyc-tokend', ...asUser).stdout).toBe(`${USER}\n`)
    expect(stderr()).not.toMatch(/"level":"(warning|error)"/)

    spawnSync(...crun('kill', ID, 'TERM'))
    expect((await ended).status).toBe(0)
  })
})
