// Every command as data: the help, the completions and the manual pages are made from this page.
import type { CommandSpec, OptionSpec } from './command.ts'

const socket: OptionSpec = {
  type: 'string',
  value: 'PATH',
  summary: "The daemon's socket",
  default:
    "$KYC_TOKEND_SOCKET, else the first that is there of /run/kyc-tokend/ipc.sock and the person's own",
}
const config: OptionSpec = {
  type: 'string',
  value: 'PATH',
  summary: 'The configuration file',
  default: '$KYC_TOKEND_CONFIG, else kyc-tokend.config.json, .yaml or .yml here or in /etc/kyc-tokend',
}
const minValid: OptionSpec = {
  type: 'string',
  value: 'DURATION',
  summary: 'Wait for a token that lives so much longer, such as 60s (at most 24h)',
  default: '0s',
}
const wait: OptionSpec = {
  type: 'string',
  value: 'DURATION',
  summary: 'How long to wait for a token that is good enough (at most 60s)',
  default: '10s',
}

export const commands: readonly CommandSpec[] = [
  {
    name: 'run',
    summary: 'Run the daemon in the foreground',
    options: { config },
    details: [
      'Fetches the access token, keeps it fresh, and serves it on its sockets and in its token files. Logs go to stderr.',
      'SIGTERM and SIGINT stop it in order, SIGHUP reads the configuration anew, SIGUSR2 asks the service now.',
    ],
  },
  {
    name: 'token',
    summary: 'Print the access token',
    options: {
      format: {
        type: 'string',
        value: 'FORMAT',
        choices: ['raw', 'header', 'env', 'json'],
        default: 'raw',
        summary: 'The token alone, an Authorization header, KYC_ACCESS_TOKEN=…, or JSON with its expiry',
      },
      'min-valid': minValid,
      wait,
      socket,
    },
    details: [
      'Nothing but the token goes to stdout. Where the daemon still has none that lives long enough when the wait is over, the freshest there is is printed.',
      'For curl, keep the token out of its arguments, which other users can read: kyc-tokend token --format header | curl -H @- https://…',
    ],
  },
  {
    name: 'watch',
    summary: 'Print one line of JSON now and at each change of the token or its state',
    options: { socket },
    details: [
      'Each line has the fields of an answer to `token --format json`. While there is no token it has `code` and `message` instead, which say why. Goes on across restarts of the daemon.',
    ],
  },
  {
    name: 'status',
    summary: 'Show state, life left, next refresh, failures and what to do about them',
    options: {
      json: { type: 'boolean', summary: 'As one JSON object, for programs' },
      socket,
    },
    details: [
      'Ends with 0 while a usable token is held and nothing is refused, with 75 without one, and with 77 when the service refuses the account.',
    ],
  },
  {
    name: 'refresh',
    summary: 'Ask the service for a new token now, and say how it went',
    options: { socket },
    details: ["For root and the daemon's own user. Also ends a refusal that waits for somebody to act."],
  },
  {
    name: 'reject',
    summary: 'Report a token that the service answered with 401',
    positionals: '[FINGERPRINT|-]',
    options: { socket },
    details: [
      'Without an argument it is the current token, with a fingerprint that one, with - the token on stdin, alone or as `token --format header` or `--format env` prints it. A token itself is not taken as an argument: arguments can be read by others.',
    ],
  },
  {
    name: 'explain',
    summary: 'Say what the daemon would make of an answer of the service',
    options: {
      status: { type: 'string', value: 'STATUS', summary: 'HTTP status of the answer, such as 500' },
      body: { type: 'string', value: 'FILE', summary: 'File with the body of the answer; - for stdin' },
      header: {
        type: 'string',
        value: 'HEADER',
        isRepeatable: true,
        summary: "Header of the answer, such as 'Retry-After: 120'; may be given several times",
      },
    },
  },
  {
    name: 'check',
    summary:
      'Find every fault of configuration, permissions, directories, socket and host, each with its remedy',
    options: {
      config,
      'config-only': { type: 'boolean', summary: 'The configuration alone' },
      live: { type: 'boolean', summary: 'Also ask the service for a token, once' },
    },
    details: ['Run with sudo it judges as the user kyc-tokend would, where there is one.'],
  },
  {
    name: 'exec',
    summary: 'Run a command with the token in its environment, once there is one',
    positionals: '-- CMD [ARG …]',
    options: { 'min-valid': minValid, wait, socket },
    details: [
      'CMD finds the token in KYC_ACCESS_TOKEN. It replaces this process, so signals and exit status are its own; 126 and 127 say that it could not be run or found. It does not see later tokens: for what runs long, use the token file or the socket.',
    ],
  },
  {
    name: 'sandbox',
    summary: 'A stand-in of the service on loopback, for trying things and for rehearsing outages',
    options: {
      port: { type: 'string', value: 'N', summary: 'Port on 127.0.0.1', default: 'a free one' },
      scenario: {
        type: 'string',
        value: 'NAME',
        choices: [
          'ok',
          'account-inactive',
          'account-not-found',
          'outage',
          'rate-limited',
          'slow',
          'flaky',
          'html-error',
          'opaque-token',
          'expired-token',
        ],
        default: 'ok',
        summary: 'How it answers',
      },
      'token-lifetime': {
        type: 'string',
        value: 'DURATION',
        default: '60s',
        summary: 'Life of its tokens',
      },
    },
  },
  {
    name: 'demo',
    summary: 'Sandbox and daemon together in a temporary directory, with what to try next',
    options: {},
  },
  {
    name: 'completions',
    summary: 'Print the completions for a shell',
    positionals: 'bash|zsh|fish',
    options: {},
    details: [
      'For bash: source <(kyc-tokend completions bash). For zsh: source <(kyc-tokend completions zsh) after compinit. For fish: kyc-tokend completions fish | source.',
    ],
  },
]
