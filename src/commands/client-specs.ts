// The commands of the small program, as data: those for programs that use the token.
import type { CommandSpec } from '../terminal/command.ts'

export const ofDaemon = {
  socket: {
    value: 'PATH',
    summary: "The daemon's socket",
    default: "$KYC_TOKEND_SOCKET, else /run/kyc-tokend/ipc.sock if it exists, else your own daemon's",
  },
  account: {
    value: 'NAME',
    summary: 'The account, if the host has several; not with --socket',
    default: '$KYC_TOKEND_ACCOUNT, else the daemon of --socket',
  },
}
const ofToken = {
  'min-valid': { value: 'DURATION', summary: 'Least life left of the token (at most 24h)', default: '0s' },
  wait: {
    value: 'DURATION',
    summary: 'How long to wait for it (at most 60s); if given, also for a daemon that does not run yet',
    default: '10s',
  },
}
export const exitsOfClient = {
  69: 'no daemon is running',
  75: 'there is no usable token now',
  77: 'the service refuses the account, or access is denied',
}

/** By name. */
export const clientCommands = {
  token: {
    name: 'token',
    examples: [
      'kyc-tokend token',
      'kyc-tokend token --format json --wait 30s',
      'kyc-tokend token --min-valid 60s',
    ],
    load: () => import('./token.ts'),
    summary: 'Print the access token',
    exits: { 0: 'it printed a token', ...exitsOfClient },
    options: {
      format: {
        value: 'FORMAT',
        summary: 'The token alone, its header for a request, KYC_ACCESS_TOKEN=…, or JSON with its expiry',
        default: 'raw',
        choices: ['raw', 'header', 'env', 'json'],
      },
      ...ofToken,
      ...ofDaemon,
    },
    details: [
      'Only the token goes to stdout. If no token with enough life comes within the wait, it is the freshest one.',
      'For curl, keep the token out of its arguments, which other users can read: ' +
        'header=$(kyc-tokend token --format header) && echo "$header" | curl --max-time 30 -H @- https://…',
    ],
  },
  watch: {
    name: 'watch',
    examples: ['kyc-tokend watch --no-token'],
    load: () => import('./watch.ts'),
    summary: 'Print one line of JSON now and at each change of the token or its state',
    exits: {
      0: 'the reader of the output is gone',
      69: exitsOfClient[69],
      77: 'access is denied',
      78: 'the package koffi is missing',
    },
    options: {
      'no-token': { summary: 'Leave out the token, for people and logs' },
      ...ofDaemon,
    },
    details: [
      'Each line has the fields of `token --format json`, or `code` and `message` while there is no token. The command ' +
        'survives restarts of the daemon.',
    ],
  },
  status: {
    name: 'status',
    examples: ['sudo kyc-tokend status', 'kyc-tokend status --json'],
    load: () => import('./status.ts'),
    summary: 'Show state, life left, next refresh, failures and what to do about them',
    exits: { 0: 'a usable token is held and the account is not refused', ...exitsOfClient },
    options: {
      json: { summary: 'Print one JSON object, for programs' },
      ...ofDaemon,
    },
    details: ['It first says what to do. If no daemon runs, it says why the unit does not run.'],
  },
  reload: {
    name: 'reload',
    examples: ['sudo kyc-tokend reload'],
    load: () => import('./reload.ts'),
    summary: 'Have the daemon read its configuration and secrets again, and say what is in force',
    exits: {
      0: 'what was read is in force, save what needs a restart',
      69: exitsOfClient[69],
      75: 'another pair in the files has given no token yet',
      77: 'the service refuses another pair in the files, or access is denied',
      78: 'the configuration is faulty, and nothing was taken over',
    },
    options: ofDaemon,
    details: [
      "For root and the daemon's own user. Settings are in force at once, another pair once it gives a token: the " +
        'command waits up to 60 s for that.',
    ],
  },
  reject: {
    name: 'reject',
    examples: [
      'kyc-tokend reject',
      'kyc-tokend reject 0123456789abcdef',
      'kyc-tokend token | kyc-tokend reject -',
    ],
    load: () => import('./reject.ts'),
    summary: 'Report a token that the service answered with 401',
    positionals: '[FINGERPRINT|-]',
    exits: exitsOfClient,
    options: ofDaemon,
    details: [
      'It reports the current token, or the token of a fingerprint, or with - the token on stdin. It refuses a token as ' +
        'an argument, because other users can read arguments.',
    ],
  },
  exec: {
    name: 'exec',
    examples: ['kyc-tokend exec -- billing', 'kyc-tokend exec --env API_TOKEN -- billing'],
    load: () => import('./exec.ts'),
    summary: 'Run a command with the token in its environment, once there is one',
    positionals: '-- CMD [ARG …]',
    exits: {
      0: 'the command succeeded',
      ...exitsOfClient,
      126: 'the command cannot be run',
      127: 'it is not found',
      other: 'that of the command',
    },
    options: {
      ...ofToken,
      env: { value: 'VARIABLE', summary: 'Variable that has the token', default: 'KYC_ACCESS_TOKEN' },
      ...ofDaemon,
    },
    details: [
      'CMD replaces this process, so it gets the signals and gives the exit status. Of the open descriptors it gets ' +
        'the standard streams, and the sockets that systemd handed to this process.',
    ],
  },
} satisfies Readonly<Record<string, CommandSpec>>
