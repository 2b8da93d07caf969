import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chownSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { PROGRAM } from '../support/daemon.ts'
import { lacks } from '../support/lacks.ts'
import { expectUntil } from '../support/until.ts'

const isNoRoot = process.getuid?.() !== 0
if (isNoRoot) process.stderr.write('The OCI image is not tested: only root makes containers\n')
// The image, unpacked and run by the tools of Debian, with nothing that a container needs not have.
const isLeftOut = isNoRoot || lacks('dpkg-deb', 'jq', 'ldd', 'skopeo', 'umoci', 'crun', 'unshare')

const USER = 65532
const ID = `kyc-tokend-test-${process.pid}`

describe.skipIf(isLeftOut && process.env['KYC_TOKEND_REQUIRE_SYSTEMD'] !== '1')('the OCI image', () => {
  let work: string
  let image: string
  beforeAll(() => {
    work = mkdtempSync(path.join(tmpdir(), 'kyc-tokend-test-'))
    image = build('first')
  })
  afterAll(() => {
    rmSync(work, { recursive: true, force: true })
  })

  function build(name: string): string {
    const script = path.resolve(import.meta.dirname, '../../systemd/build-oci.ts')
    const args = [script, '--program', path.dirname(PROGRAM[1]), '--out', path.join(work, name)]
    return execFileSync(process.execPath, args, { encoding: 'utf8' }).trim()
  }

  /** crun refuses a machine with both hierarchies of control groups: it gets the unified one. */
  function crun(...args: string[]): [string, string[]] {
    const script = 'mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec crun --cgroup-manager=disabled "$@"'
    return ['unshare', ['--mount', 'sh', '-euc', script, 'sh', '--root', path.join(work, 'state'), ...args]]
  }
  const inside = (...command: string[]): { status: number | null; stdout: string; stderr: string } =>
    spawnSync(...crun('exec', '--user', `${USER}:${USER}`, ID, ...command), { encoding: 'utf8' })

  it('is the same, byte for byte, when it is built again', () => {
    const hashOf = (file: string): string => createHash('sha256').update(readFileSync(file)).digest('hex')
    expect(hashOf(build('second'))).toBe(hashOf(image))
  })

  it('is one that other tools can read, and holds the licences of its libraries', () => {
    const inspected = execFileSync('skopeo', ['inspect', '--config', `oci-archive:${image}`], {
      encoding: 'utf8',
    })
    expect(JSON.parse(inspected)).toMatchObject({
      architecture: 'amd64',
      os: 'linux',
      config: { User: `${USER}:${USER}`, Cmd: ['run'], StopSignal: 'SIGTERM' },
    })
    execFileSync('skopeo', [
      'copy',
      '--quiet',
      `oci-archive:${image}`,
      `oci:${path.join(work, 'layout')}:test`,
    ])
    const bundle = path.join(work, 'bundle')
    execFileSync('umoci', ['unpack', '--image', `${path.join(work, 'layout')}:test`, bundle], {
      stdio: 'ignore',
    })
    const documents = path.join(bundle, 'rootfs/usr/share/doc')
    for (const name of ['kyc-tokend', 'libc6', 'libstdc++6', 'libgcc-s1'])
      expect(existsSync(path.join(documents, name, 'copyright')), name).toBe(true)
    for (const absent of ['bin/sh', 'usr/bin/sh', 'usr/lib/kyc-tokend/alert'])
      expect(existsSync(path.join(bundle, 'rootfs', absent)), absent).toBe(false)
  })

  it('serves the token on a read-only root, without any capability', { timeout: 120_000 }, async () => {
    const configuration = path.join(work, 'configuration')
    const run = path.join(work, 'run')
    for (const directory of [configuration, run]) mkdirSync(directory)
    chownSync(run, USER, USER)
    let printed = ''
    const standIn = start(process.execPath, [PROGRAM[1], 'sandbox', '--port', '0'])
    standIn.stdout!.on('data', (chunk: Buffer) => (printed += chunk.toString()))
    const baseUrl = await expectUntil('the stand-in', () => /http:\/\/127\.0\.0\.1:\d+/.exec(printed)?.[0])
    // As a secret is mounted: root's, for the daemon's group.
    const files: Record<string, string> = {
      'api-key': 'sandbox-key',
      'api-secret': 'sandbox-secret',
      'kyc-tokend.config.json': JSON.stringify({
        baseUrl,
        credentials: { apiKey: { file: 'api-key' }, apiSecret: { file: 'api-secret' } },
        tokenFiles: [{ path: 'token', mode: '0640' }],
      }),
    }
    for (const [name, text] of Object.entries(files)) {
      writeFileSync(path.join(configuration, name), text, { mode: 0o440 })
      chownSync(path.join(configuration, name), 0, USER)
    }
    const tmpfs = {
      type: 'tmpfs',
      source: 'tmpfs',
      options: ['nosuid', 'nodev', 'mode=0700', `uid=${USER}`, `gid=${USER}`],
    }
    const bind = (destination: string, source: string, mode: string): object => {
      return { destination, type: 'none', source, options: ['bind', mode] }
    }
    const mounts = [
      bind('/etc/kyc-tokend', configuration, 'ro'),
      bind('/run/kyc-tokend', run, 'rw'),
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
    const file = path.join(work, 'bundle/config.json')
    writeFileSync(file, execFileSync('jq', [change, file]))

    const container = start(...crun('run', '--bundle', path.join(work, 'bundle'), ID))
    let log = ''
    container.stderr!.on('data', (chunk: Buffer) => (log += chunk.toString()))
    const ended = new Promise((resolve) => container.once('close', resolve))
    onTestFinished(() => void spawnSync(...crun('delete', '--force', ID)))
    await expectUntil('readiness', () => {
      if (container.exitCode !== null) throw new Error(`The container has ended: ${log}`)
      return inside('kyc-tokend-probe', 'readyz').status === 0
    })
    expect(inside('kyc-tokend-probe', 'healthz').status).toBe(0)
    expect(inside('kyc-tokend-probe', 'nothing')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('404'),
    })
    expect(inside('kyc-tokend', 'status').status).toBe(0)
    const token = readFileSync(path.join(run, 'token'), 'utf8')
    expect(inside('kyc-tokend', 'token').stdout).toBe(`${token}\n`)
    // From another container that shares the volume: here, this host.
    const client = spawnSync(
      process.execPath,
      [PROGRAM[1], 'token', '--socket', path.join(run, 'ipc.sock')],
      { encoding: 'utf8' },
    )
    expect(client.stdout).toBe(`${token}\n`)
    expect(
      inside('kyc-tokend', 'exec', '--', '/usr/lib/kyc-tokend/node', '-p', 'process.getuid()').stdout,
    ).toBe(`${USER}\n`)
    expect(log).not.toMatch(/"level":"(warning|error)"/)

    spawnSync(...crun('kill', ID, 'TERM'))
    expect(await ended).toBe(0)
  })

  function start(command: string, args: string[]): ChildProcess {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] })
    onTestFinished(() => void child.kill('SIGKILL'))
    return child
  }
})
