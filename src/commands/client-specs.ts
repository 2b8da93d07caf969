// The commands of the small program, as data: those that need the client library alone.
import type { Commands } from '../terminal/command.ts'

export const ofAccount = {
  account: {
    value: 'NAME',
    summary: 'The account, if the host has several; not with --socket or --config',
    default: '$KYC_TOKEND_ACCOUNT, if set',
  },
}
export const ofDaemon = {
  socket: {
    value: 'PATH',
    summary: "The daemon's socket",
    default: "$KYC_TOKEND_SOCKET, else /run/kyc-tokend/ipc.sock if it exists, else your own daemon's",
  },
  ...ofAccount,
}
const ofToken = {
  'min-valid': { value: 'DURATION', summary: 'Least life left of the token (at most 24h)', default: '0s' },
  wait: {
    value: 'DURATION',
    summary: 'Time to wait for it (at most 60s); if given, also for a daemon that does not run yet',
    default: '10s',
  },
}

/** By name. */
export const clientCommands = {
  token: {
    load: async () => (await import('./programs.ts')).token,
    summary: 'Print the access token, and nothing else',
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
    details:
      'If no token with enough life comes within the wait, it is the freshest one. Keep it out of arguments, which ' +
      'other users can read: curl takes a header from its stdin by -H @-.',
  },
  watch: {
    load: async () => (await import('./programs.ts')).watch,
    summary: 'Print one line of JSON now and at each change of the token or its state',
    options: ofDaemon,
    details: 'While there is no token, a line has `code` and `message`. It survives restarts of the daemon.',
  },
  status: {
    load: async () => (await import('./programs.ts')).status,
    summary: 'Show state, life left, next refresh, failures and what to do about them',
    options: { json: { summary: 'Print one JSON object, for programs' }, ...ofDaemon },
    details: 'Exit status 0: a usable token is held and the account is not refused.',
  },
  reload: {
    load: async () => (await import('./operators.ts')).reload,
    summary: 'Have the daemon read its configuration and secrets again, and say what is in force',
    options: ofDaemon,
    details:
      "For root and the daemon's own user. It names what needs a restart. Exit status: 78 the configuration is " +
      'faulty, and nothing was taken over; 77 the service refuses another pair in the files; 75 that pair has given ' +
      'no token within 60 s.',
  },
  reject: {
    load: async () => (await import('./programs.ts')).reject,
    summary:
      'Report a token that the service refused: the current one, that of a fingerprint, or one on stdin (-)',
    positionals: '[FINGERPRINT|-]',
    options: ofDaemon,
    details: 'It takes no token as an argument, which other users can read.',
  },
  exec: {
    load: async () => (await import('./programs.ts')).exec,
    summary: 'Run a command with the token in its environment, once there is one',
    positionals: '-- CMD [ARG …]',
    options: {
      ...ofToken,
      env: { value: 'NAME', summary: 'Variable that has the token', default: 'KYC_ACCESS_TOKEN' },
      ...ofDaemon,
    },
    details:
      'CMD replaces this process: it gets the signals and the standard streams, and gives ' +
      'the exit status (126: it cannot be run; 127: it is not there).',
  },
} satisfies Commands
