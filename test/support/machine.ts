// A machine with a real systemd, booted in a namespace of its own on a throw-away copy of this host's files.
import { spawnSync, type ChildProcess } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { textOf } from './daemon.ts'
import { missingOf } from './lacks.ts'
import { startProgram, type Ended } from './run-cli.ts'
import { expectUntil } from './until.ts'

interface RunOptions {
  /** Written to its standard input. */
  readonly input?: string
  /** A user of the machine; root where there is none. */
  readonly as?: string | undefined
  readonly timeoutMs?: number
}
export type Machine = Awaited<ReturnType<typeof bootMachine>>

const PROGRAMS = ['/lib/systemd/systemd', 'systemd-nspawn', 'nsenter', 'unshare', 'setpriv', 'dbus-daemon']
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** Units of the host's own start-up that the machine leaves out: hardware, kernel, network, clean-up. */
const MASKED = `
  dev-hugepages.mount dev-mqueue.mount e2scrub_reap.service kmod-static-nodes.service ldconfig.service
  modprobe@.service sys-fs-fuse-connections.mount sys-kernel-config.mount sys-kernel-debug.mount
  sys-kernel-tracing.mount systemd-binfmt.service systemd-firstboot.service
  systemd-hwdb-update.service systemd-journal-flush.service systemd-logind.service
  systemd-machine-id-commit.service systemd-modules-load.service systemd-networkd.service
  systemd-pstore.service systemd-random-seed.service systemd-remount-fs.service
  systemd-resolved.service systemd-sysctl.service systemd-sysusers.service systemd-timesyncd.service
  systemd-tmpfiles-setup-dev.service systemd-tmpfiles-setup.service systemd-udev-trigger.service
  systemd-udevd.service systemd-update-done.service systemd-update-utmp.service
`
  .trim()
  .split(/\s+/)

/** Why no machine can be booted here, in one sentence; undefined where one can. */
export function whyNoMachine(): string | undefined {
  if (process.getuid?.() !== 0) return 'a machine with systemd can be booted by root only'
  const missing = missingOf(PROGRAMS)
  if (missing.length > 0)
    return `a machine with systemd needs ${missing.join(', ')} (packages systemd, systemd-container, dbus)`
  if (unifiedHierarchy() === undefined) return 'a machine with systemd needs a mounted cgroup2 hierarchy'
  return undefined
}

/** Boots one. Throws where it does not come up, with what it said. */
export async function bootMachine() {
  const directory = await mkdtemp(path.join(tmpdir(), 'kyc-tokend-machine-'))
  const cgroup = path.join(unifiedHierarchy() ?? '', path.basename(directory))
  // Ends with this process, however this process ends.
  const words = ['--pdeathsig', 'KILL', 'unshare', '--mount', 'sh', '-euc', BOOT_SCRIPT, 'boot']
  const booting = startProgram(['setsid', 'setpriv', ...words, directory, cgroup, ...MASKED])
  const nspawn = booting.child
  nspawn.stdin.end()

  /** Ends it and removes every trace: processes, mounts, control group, directory. */
  async function stop(): Promise<void> {
    nspawn.kill('SIGKILL')
    await booting.ended
    await removeCgroup(cgroup)
    await rm(directory, { recursive: true, force: true })
  }

  try {
    const leader = await leaderOf(nspawn)
    const inside = `nsenter --target ${leader} --all env --chdir=/ -i PATH=${PATH} LC_ALL=C.UTF-8`.split(' ')
    /** Runs a command in the machine and waits for its end, whatever its status. */
    const run = async (command: readonly string[], options: RunOptions = {}): Promise<Ended> => {
      const { as, input = '', timeoutMs = 170_000 } = options
      const user = as === undefined ? [] : ['runuser', '-u', as, '--']
      const program = startProgram([...inside, ...user, ...command])
      const timer = setTimeout(() => program.child.kill('SIGKILL'), timeoutMs)
      // A command that does not read its input may be gone before it is written.
      program.child.stdin.on('error', () => undefined)
      program.child.stdin.end(input)
      return program.ended.finally(() => clearTimeout(timer))
    }
    await expectUntil('the machine to run', async () =>
      /^(running|degraded)$/m.test((await run(['systemctl', 'is-system-running'])).stdout),
    )
    return {
      /** A file of the machine as this process sees it. */
      path: (file: string): string => `/proc/${leader}/root${file}`,
      /** The folder with what the machine has written beside this host's files, as this process sees it. */
      written: `/proc/${nspawn.pid}/root${directory}/layers/upper`,
      run,
      /** Runs a shell script in the machine; gives its output, and throws where it fails. */
      sh: async (script: string, options: RunOptions = {}): Promise<string> => {
        const { status, stdout, stderr } = await run(['sh', '-euc', script], options)
        if (status !== 0) throw new Error(`Status ${status} of: ${script}\n${stdout}${stderr}`)
        return stdout
      },
      stop,
    }
  } catch (error) {
    await stop()
    throw new Error(booting.stdout() + booting.stderr(), { cause: error })
  }
}

/**
 * Its own mounts: this host's files below, a tmpfs above. nspawn wants the unified hierarchy at
 * /sys/fs/cgroup and a control group that is all its own. IPAddressDeny= is enforced only with all
 * capabilities and bpf.
 */
const BOOT_SCRIPT = `
directory=$1 cgroup=$2
shift 2
mount --make-rprivate /
layers=$directory/layers root=$directory/layers/root
mkdir -p /run/systemd "$layers"
mount -t tmpfs tmpfs "$layers"
mkdir "$layers/upper" "$layers/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$layers/upper,workdir=$layers/work" "$root"
mount -t tmpfs tmpfs /run/systemd
mkdir "$cgroup"
echo $$ >"$cgroup/cgroup.procs"
umount -lR /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
: >"$root/etc/fstab"
# With man-db's automatic update each installation would make the index of all manual pages of this host.
rm -f "$root/usr/sbin/policy-rc.d" "$root/var/lib/man-db/auto-update"
for unit; do ln -sf /dev/null "$root/etc/systemd/system/$unit"; done
cat >"$root/etc/systemd/system/tests.target" <<'END'
[Unit]
Requires=sysinit.target dbus.socket
Wants=systemd-journald.service
After=sysinit.target dbus.socket systemd-journald.service
END
exec systemd-nspawn --boot --quiet --register=no --keep-unit --link-journal=no --private-network \\
  --resolv-conf=off --timezone=off --capability=all --system-call-filter='bpf @keyring' \\
  --console=read-only --directory="$root" -- --unit=tests.target
`

/** The directory in which a control group can be made: one's own group of the unified hierarchy. */
function unifiedHierarchy(): string | undefined {
  const mount = /^\S+ \S+ \S+ \S+ (\S+) .* - cgroup2 /m.exec(readFileSync('/proc/self/mountinfo', 'utf8'))
  const own = /^0::(.*)$/m.exec(readFileSync('/proc/self/cgroup', 'utf8'))
  return mount?.[1] !== undefined && own?.[1] !== undefined ? path.join(mount[1], own[1]) : undefined
}

/** The machine's process 1 as this host numbers it. */
function leaderOf(nspawn: ChildProcess): Promise<number> {
  const { pid } = nspawn
  return expectUntil('the machine to boot', () => {
    if (nspawn.exitCode !== null || nspawn.signalCode !== null) throw new Error('It has ended')
    const children = (textOf(`/proc/${pid}/task/${pid}/children`) ?? '').trim().split(' ').map(Number)
    return children.find((child) => textOf(`/proc/${child}/comm`) === 'systemd\n')
  })
}

/** Ends what is left in it. The kernel lets go of a control group only when its last process is reaped. */
async function removeCgroup(folder: string): Promise<void> {
  if (!existsSync(folder)) return
  writeFileSync(path.join(folder, 'cgroup.kill'), '1')
  const remove = ['-c', 'find "$0" -depth -type d -exec rmdir {} +', folder]
  await expectUntil(`the end of ${folder}`, () => spawnSync('sh', remove).status === 0)
}
