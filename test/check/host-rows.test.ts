// The table about the host, with scripted facts: each fault has its line, and a healthy host has none.
import { expect, test } from 'vitest'
import type { Finding } from '../../src/check/findings.ts'
import { hostRows, type Host, type Socket, type Unit } from '../../src/check/host-rows.ts'
import { createRemedies } from '../../src/host/remedy.ts'
import type { StatusResult } from '../../src/protocol.ts'

const UP = { LoadState: 'loaded', ActiveState: 'active', Result: 'success', UnitFileState: 'enabled' }
const unit = (name: string, more: object = {}, path?: string): Unit => ({
  name,
  path,
  properties: { ...UP, ...more },
})
const service = (more: object = {}): Unit =>
  unit('kyc-tokend.service', { User: 'kyc-tokend', Group: 'kyc-token', ...more })
const ipcUnit = (more: object = {}): Unit =>
  unit('kyc-tokend.socket', { SocketGroup: 'kyc-token', ...more }, '/run/kyc-tokend/ipc.sock')
const alertUnit = (more: object = {}): Unit => unit('kyc-tokend-alert.path', more)
const ipc: Socket = { name: 'ipc', path: '/run/kyc-tokend/ipc.sock', isOpen: true }
const { remedyOf } = createRemedies({ account: undefined, isUnit: true })

const daemon = (more: object = {}): StatusResult['daemon'] =>
  ({
    stateProblem: null,
    configuration: { state: 'current', problem: null },
    ...more,
  }) as StatusResult['daemon']
const status = (more: object = {}): StatusResult =>
  ({
    state: 'ready',
    files: [],
    failure: null,
    alert: null,
    daemon: daemon(),
    ...more,
  }) as unknown as StatusResult

/** The output of programs by their first words; `getent` knows all that is not denied. */
function running(said: Readonly<Record<string, string>> = {}, denied: readonly string[] = []): Host['run'] {
  return async (...words) => {
    const line = words.join(' ')
    if (words[0] === 'getent') return denied.includes(words[2]!) ? '' : `${words[2]}:x:1:`
    return Object.entries(said).find(([start]) => line.startsWith(start))?.[1] ?? ''
  }
}

const healthy: Host = {
  remedies: createRemedies({ account: undefined, isUnit: true }),
  service: service(),
  others: [ipcUnit(), alertUnit()],
  sockets: [ipc],
  status: status(),
  directories: ['/run/kyc-tokend/files', '/var/lib/kyc-tokend'],
  nowMs: Date.UTC(2030, 0, 1),
  run: running({ findmnt: '/\n/run\n/var', timedatectl: 'yes\n' }),
  stat: (path) => ({ mode: path.endsWith('.sock') ? 0o140660 : 0o40755 }),
  askAsMember: async () => null,
  space: async () => [{ mount: '/', available: 1e12 }],
  memory: async () => 1e12,
}

async function findings(more: Partial<Host>): Promise<(Finding & { subject: string })[]> {
  const found = await Promise.all(hostRows.map(async (examine) => examine({ ...healthy, ...more })))
  return found.flat()
}
const bad = async (more: Partial<Host>) => (await findings(more)).filter(({ level }) => level !== 'ok')

test('a healthy host has no fault, and says what was asked', async () => {
  expect(await bad({})).toEqual([])
  expect((await findings({})).map(({ sentence }) => sentence)).toEqual([
    '/run/kyc-tokend/ipc.sock answers',
    expect.stringContaining('the clock says 2030-01-01T00:00:00.000Z, and Node is v'),
    'the file system at / has 953674 MiB left',
  ])
})

const rebind = [
  'sudo systemctl stop kyc-tokend.socket kyc-tokend-http.socket kyc-tokend-metrics.socket kyc-tokend-alert.path kyc-tokend',
  'sudo systemctl start kyc-tokend',
]
const restart = 'sudo systemctl restart kyc-tokend'
const log = 'sudo journalctl -u kyc-tokend -n 20'
const failing = { ActiveState: 'failed', Result: 'exit-code' }
const said =
  '  Active: failed (Result: exit-code) since now\n Process: 7 ExecStart=x (code=exited, status=226/NAMESPACE)\n CPU: 1'

test.each<[string, Partial<Host>, RegExp, readonly string[]]>([
  [
    'a masked service',
    { service: service({ LoadState: 'masked', ActiveState: 'inactive' }) },
    /^fault unit kyc-tokend\.service is masked/,
    ['sudo systemctl unmask kyc-tokend.service', ...rebind],
  ],
  [
    'a masked socket',
    { others: [ipcUnit({ LoadState: 'masked', ActiveState: 'inactive' })] },
    /^fault unit kyc-tokend\.socket is masked/,
    ['sudo systemctl unmask kyc-tokend.socket', ...rebind],
  ],
  [
    'a unit that changed on disk',
    { service: service({ NeedDaemonReload: 'yes' }) },
    /^warning unit kyc-tokend\.service changed on disk/,
    ['sudo systemctl daemon-reload', restart],
  ],
  [
    'a drop-in that systemd does not understand, in its words',
    {
      run: running({
        'systemd-analyze verify': '/etc/x.conf: of another\n/etc/kyc-tokend.d/z.conf:2: Unknown key',
      }),
    },
    /^warning unit systemd says: \/etc\/kyc-tokend\.d\/z\.conf:2: Unknown key$/,
    [],
  ],
  [
    'a service that has failed, in the words of systemd',
    { service: service(failing), status: null, run: running({ 'systemctl status': said }) },
    /^fault unit the service does not run\. Active: failed .*; Process: 7 .*226\/NAMESPACE\)$/,
    [log, ...rebind],
  ],
  [
    'a group that is gone',
    { run: running({}, ['kyc-token']) },
    /^fault users there is no user or group kyc-token; make it again, then add its members/,
    ['sudo systemd-sysusers kyc-tokend.conf', ...rebind],
  ],
  [
    'a group of a drop-in that is not there',
    {
      others: [ipcUnit({ SocketGroup: 'banking' })],
      service: service({ Group: 'banking' }),
      run: running({}, ['banking']),
    },
    /^fault users there is no user or group banking.*correct the drop-in/,
    [],
  ],
  [
    'a mount over the sockets',
    { run: running({ findmnt: '/\n/run\n/run/kyc-tokend\n/run/lock' }) },
    /^fault directories a file system is mounted over \/run\/kyc-tokend/,
    ['sudo umount /run/kyc-tokend', ...rebind],
  ],
  [
    'a closed /run',
    { stat: (path) => ({ mode: path === '/run' ? 0o40750 : 0o660 }) },
    /^fault directories others may not pass through \/run/,
    ['sudo chmod 0755 /run'],
  ],
  [
    'a socket unit that is stopped',
    { others: [ipcUnit({ ActiveState: 'inactive' })] },
    /^fault unit kyc-tokend\.socket is inactive \(success\), so that \S+ipc\.sock is closed$/,
    rebind,
  ],
  [
    'an alert unit that is stopped',
    { others: [ipcUnit(), alertUnit({ ActiveState: 'inactive' })] },
    /^fault unit kyc-tokend-alert\.path is inactive .*no alert runs the alert command$/,
    rebind,
  ],
  [
    'a socket whose group is not that of its service',
    { others: [ipcUnit({ SocketGroup: 'root' })] },
    /^fault sockets kyc-tokend\.socket has SocketGroup=root, and its service Group=kyc-token/,
    [
      "printf '[Socket]\\nSocketGroup=kyc-token\\n' | sudo install -D -m 0644 /dev/stdin " +
        '/etc/systemd/system/kyc-tokend.socket.d/zz-group.conf',
      'sudo systemctl daemon-reload',
      rebind.join(' && '),
    ],
  ],
  [
    'a socket that is opened too wide',
    { stat: (path) => ({ mode: path.endsWith('.sock') ? 0o140666 : 0o40755 }) },
    /^fault sockets every user of this host may connect to \/run\/kyc-tokend\/ipc\.sock/,
    [expect.stringContaining('SocketMode=0660'), 'sudo systemctl daemon-reload', rebind.join(' && ')],
  ],
  [
    'a member who may not connect',
    { askAsMember: async () => 'EACCES' },
    /^fault sockets a member of kyc-token gets no answer at \/run\/kyc-tokend\/ipc\.sock \(EACCES\)$/,
    rebind,
  ],
  [
    'a daemon that is silent',
    { askAsMember: async () => 'timeout' },
    /^fault sockets a member of .* \(timeout\)$/,
    [restart],
  ],
  [
    'a socket whose places are taken',
    { askAsMember: async () => 'daemon-unreachable' },
    /^fault sockets no answer at .*maxConnectionsPerUser/,
    [],
  ],
  [
    'a clock that is not synchronised',
    { run: running({ timedatectl: 'no\n' }) },
    /^warning host the clock says 2030-\S+ and is not synchronised/,
    ['sudo timedatectl set-ntp true'],
  ],
  [
    'a clock that was never set',
    { nowMs: 0 },
    /^warning host the clock says 1970-/,
    ['sudo timedatectl set-ntp true'],
  ],
  [
    'a full disk',
    {
      space: async () => [
        { mount: '/', available: 1e12 },
        { mount: '/run', available: 9 },
      ],
    },
    /^fault host the file system at \/run is full/,
    ['df -h /run'],
  ],
  ['little memory', { memory: async () => 2e7 }, /^warning host only 19 MiB of memory are free/, []],
  [
    'a token file that is not written',
    { status: status({ files: [{ path: '/a/t', ok: false, error: 'no space is left' }] }) },
    /^fault files \/a\/t: no space is left$/,
    [],
  ],
  [
    'a state that is not saved',
    { status: status({ daemon: daemon({ stateProblem: 'its disk is full' }) }) },
    /^fault state the state for a restart cannot be saved: its disk is full$/,
    [],
  ],
  [
    'a pair that the service refused',
    {
      status: status({
        daemon: daemon({ configuration: { state: 'changed', problem: 'refused', pair: 'refused' } }),
      }),
    },
    /^fault credentials refused$/,
    [],
  ],
  [
    'a configuration that was not read',
    { status: status({ daemon: daemon({ configuration: { state: 'changed', problem: null } }) }) },
    /^warning configuration the daemon runs with a former configuration$/,
    ['sudo systemctl reload kyc-tokend'],
  ],
  [
    'a configuration that needs a restart',
    { status: status({ daemon: daemon({ configuration: { state: 'changed', problem: 'http is new' } }) }) },
    /^warning configuration the daemon runs with a former configuration: http is new$/,
    [restart],
  ],
  [
    'a daemon without a token',
    { status: status({ state: 'expired', failure: { reason: 'network' } }) },
    new RegExp(
      `^warning token the daemon is expired: ${remedyOf('network')
        .slice(0, 40)
        .replaceAll(/[`.()]/g, '.')}`,
    ),
    [],
  ],
])('%s', async (_, more, sentence, commands) => {
  const found = await bad(more)
  expect(found.map((each) => `${each.level} ${each.subject} ${each.sentence}`)).toEqual([
    expect.stringMatching(sentence),
  ])
  expect(found[0]?.commands ?? []).toEqual(commands)
  // A remedy is one sentence and at most three commands.
  expect(found[0]?.commands?.length ?? 0).toBeLessThanOrEqual(3)
})

test('rows of units are left out where the service is not installed, and a daemon that does not run is not started', async () => {
  let asked = 0
  const askAsMember = async (): Promise<null> => (asked++, null)
  const absent = {
    service: null,
    others: [],
    askAsMember,
    run: running({ timedatectl: 'yes' }, ['kyc-token']),
  }
  expect(await bad({ ...absent, status: null, stat: () => ({ mode: 0 }) })).toEqual([])
  await findings({ askAsMember, service: service({ ActiveState: 'inactive' }) })
  expect(asked).toBe(0)
  await findings({ askAsMember })
  expect(asked).toBe(1)
})
