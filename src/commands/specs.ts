// Every command as data: the help, the completions and the manual pages are made from this page. Only the command that
// is asked for is loaded.
import type { CommandSpec, OptionSpec } from './command.ts'
import { scenarioNames } from '../sandbox/scenarios.ts'

/** The options as the help shows them: `NAME VALUE`, what it means, and `[its default]`; `more` has what it does not show. */
function optionsOf(
  texts: Readonly<Record<string, string>>,
  more: Readonly<Record<string, Partial<OptionSpec>>> = {},
): Readonly<Record<string, OptionSpec>> {
  const options = Object.entries(texts).map(([words, text]): [string, OptionSpec] => {
    const [name = '', value] = words.split(' ')
    const [, summary = '', fallback] = /^(.*?)(?: \[(.*)\])?$/.exec(text) ?? []
    return [name, { ...(value !== undefined && { value }), summary, default: fallback, ...more[name] }]
  })
  return Object.fromEntries(options)
}

const ofDaemon = {
  'socket PATH':
    "The daemon's socket [$KYC_TOKEND_SOCKET, else /run/kyc-tokend/ipc.sock if it exists, else the person's own]",
  'account NAME':
    'The account whose daemon is meant, where the host has several; not with --socket [$KYC_TOKEND_ACCOUNT, else the daemon of --socket]',
}
const ofConfig = {
  'config PATH':
    'The configuration file [$KYC_TOKEND_CONFIG, else kyc-tokend.config.json, .yaml or .yml here or in /etc/kyc-tokend]',
  'account NAME':
    'The account, configured in /etc/kyc-tokend/accounts/NAME.json; not with --config [$KYC_TOKEND_ACCOUNT, else the configuration of --config]',
}
const ofToken = {
  'min-valid DURATION': 'Wait for a token with this life left, such as 60s (at most 24h) [0s]',
  'wait DURATION':
    'How long to wait for a token that is good enough (at most 60s); where given, also for a daemon that has not been started yet [10s]',
}
/** Those that programs use to read something again or to end. */
const signalNames = ['HUP', 'USR1', 'USR2', 'WINCH', 'TERM', 'INT', 'QUIT']

export const commands: readonly CommandSpec[] = [
  {
    name: 'setup',
    load: () => import('./setup.ts'),
    summary: 'Write configuration and secrets, check them with the service, and start the daemon',
    options: optionsOf(
      {
        'base-url URL': 'Address of the service [asked for]',
        'api-key-file FILE': 'File with the API key, which is copied [asked for, unseen]',
        'api-secret-file FILE': 'File with the API secret, which is copied [asked for, unseen]',
        'from FILE':
          'A configuration (JSON) with the key and the secret in it, instead of the three options; - for standard input',
        'preset NAME': 'Kind of the service, if not that of API key and secret [asked for]',
        'token-url URL': 'Where it gives tokens: a path after the address, or a URL [asked for]',
        'ca-file FILE': "File with the certificate of the service's private authority, which is copied",
        force: 'Replace files that say something else; other settings of the configuration stay',
        unverified: 'Keep and use a key and secret that the service has not confirmed',
        'account NAME': 'Set up this account beside the default one [the default account]',
      },
      { preset: { choices: ['oauth2'] } },
    ),
    details: [
      'Root gets /etc/kyc-tokend, readable by the group kyc-tokend; a person gets ./kyc-tokend.config.json. Where the service is installed, it is enabled and started, and the command waits up to 15 s for a token.',
      'With the three options, or with --from, it needs no terminal. Run again it changes nothing, and says so: Nothing was changed. It ends with 0 once there is a token, 75 without one, 77 when the service refuses the account, and 78 where files are there that say something else or are faulty. Without a token from the service, what was there before is put back as it was, unless --unverified is given.',
    ],
  },
  {
    name: 'run',
    load: () => import('./run.ts'),
    summary: 'Run the daemon in the foreground',
    options: optionsOf(ofConfig),
    details: [
      'Fetches the access token, keeps it fresh, and serves it on its sockets and in its token files. Logs go to stderr.',
      'SIGTERM and SIGINT stop it, SIGHUP makes it read the configuration again, SIGUSR2 makes it ask the service now.',
    ],
  },
  {
    name: 'token',
    load: () => import('./token.ts'),
    summary: 'Print the access token',
    options: optionsOf(
      {
        'format FORMAT':
          'The token alone, an Authorization header, KYC_ACCESS_TOKEN=…, or JSON with its expiry [raw]',
        ...ofToken,
        ...ofDaemon,
      },
      { format: { choices: ['raw', 'header', 'env', 'json'] } },
    ),
    details: [
      'Nothing but the token goes to stdout. If no token with enough life comes within the wait, the command prints the freshest one.',
      'For curl, keep the token out of its arguments, which other users can read: header=$(kyc-tokend token --format header) && echo "$header" | curl -H @- https://…',
    ],
  },
  {
    name: 'watch',
    load: () => import('./watch.ts'),
    summary: 'Print one line of JSON now and at each change of the token or its state',
    options: optionsOf({ 'no-token': 'Everything but the token, for eyes and logs', ...ofDaemon }),
    details: [
      'Each line has the fields of `token --format json`. While there is no token, it has `code` and `message` instead, which say why. The command survives restarts of the daemon.',
    ],
  },
  {
    name: 'status',
    load: () => import('./status.ts'),
    summary: 'Show state, life left, next refresh, failures and what to do about them',
    options: optionsOf({
      json: 'As one JSON object, for programs; with --all, one on each line',
      watch: 'Repaint it each second, with the last events, until Ctrl-C; on a pipe, a line for each event',
      all: 'A line for each account of this host',
      ...ofDaemon,
    }),
    details: [
      'Ends with 0 while a usable token is held and nothing is refused, with 75 without one, and with 77 when the service refuses the account; with --all, with the worst of all accounts (77, 75, 69, 0).',
      'What to do comes first, with the commands as they are typed on this host. Without a daemon it says why its unit does not run.',
    ],
  },
  {
    name: 'alert-test',
    load: () => import('./alert-test.ts'),
    summary: 'Rehearse an alert through the whole way: log, alert.json and alert command',
    options: optionsOf(ofDaemon),
    details: [
      "For root and the daemon's own user. The alert is marked as a test everywhere and is over after 10 s. It is refused while a real one is raised. The command ends with 78 if no alert reaches the alert command.",
    ],
  },
  {
    name: 'refresh',
    load: () => import('./refresh.ts'),
    summary: 'Ask the service for a new token now, and say how it went',
    options: optionsOf(ofDaemon),
    details: [
      "For root and the daemon's own user. It also ends a refusal: the daemon asks the service again.",
    ],
  },
  {
    name: 'reject',
    load: () => import('./reject.ts'),
    summary: 'Report a token that the service answered with 401',
    positionals: '[FINGERPRINT|-]',
    options: optionsOf(ofDaemon),
    details: [
      'Without an argument it reports the current token, with a fingerprint that one, with - the token on stdin, alone or as `token --format header` or `--format env` prints it. It refuses a token as an argument, because other users can read arguments.',
    ],
  },
  {
    name: 'explain',
    load: () => import('./explain.ts'),
    summary: 'Say what the daemon does about an answer of the service',
    options: optionsOf(
      {
        'status STATUS': 'HTTP status of the answer, such as 500',
        'body FILE': 'File with the body of the answer; - for stdin',
        'header HEADER': "Header of the answer, such as 'Retry-After: 120'; may be given several times",
        'config PATH':
          'By the `service` and the settings of this configuration, whose secrets are not read; else the standard ones',
      },
      { header: { isRepeatable: true } },
    ),
  },
  {
    name: 'check',
    load: () => import('./check.ts'),
    summary:
      'Find every fault of configuration, permissions, directories, socket and host, each with its remedy',
    options: optionsOf({
      ...ofConfig,
      'config-only': 'The configuration alone',
      live: 'Also ask the service for a token, once: ends with 77 when it refuses the account, 75 when it gives none',
    }),
    details: [
      'Run with sudo, it checks with the rights of the user kyc-tokend, if that user exists, and as the sandbox of the unit allows (systemctl show). It changes and starts nothing, and connects to no socket at which systemd listens.',
    ],
  },
  {
    name: 'exec',
    load: () => import('./exec.ts'),
    summary: 'Run a command with the token in its environment, once there is one',
    positionals: '-- CMD [ARG …]',
    options: optionsOf(
      {
        ...ofToken,
        'on-change ACTION':
          'At each new token: none, restart, or the name of a signal for the command [none]',
        'splay DURATION':
          'Restart or signal at a random moment in this time after a change (at most 24h) [0s]',
        'min-between DURATION': 'Shortest time from a start or a signal to the next one (at most 24h) [30s]',
        'stop-signal SIGNAL': 'Signal that stops the command before it is started again [TERM]',
        'stop-timeout DURATION': 'A command that has not stopped by then is killed (at most 24h) [10s]',
        ...ofDaemon,
      },
      {
        'on-change': { suggestions: ['none', 'restart', ...signalNames] },
        'stop-signal': { suggestions: signalNames },
      },
    ),
    details: [
      'CMD finds the token in KYC_ACCESS_TOKEN. It replaces this process, so signals and exit status are its own; 126 and 127 say that it could not be run or found. It gets the standard streams and the sockets that systemd handed to this process, and no other descriptor. It does not see later tokens: a program that runs long uses the token file or the socket, or is run with --on-change.',
      'With --on-change restart, kyc-tokend stays as its parent and starts it again with each new token. With the name of a signal, the command gets that signal instead once the token files are written; its environment cannot change, so it must read the token from a file. Changes that come together count once. A command that ends by itself is not started again: exec ends with its status, or with 128 and the number of the signal that killed it. TERM, INT, HUP, USR1, USR2 and WINCH go to the process group of the command, and after TERM it is not started again. While the daemon is away or the account is refused, the command keeps running. It has no controlling terminal, and no sockets that systemd handed to this process: with --on-change these are an error.',
    ],
  },
  {
    name: 'sandbox',
    load: () => import('./sandbox.ts'),
    summary: 'A stand-in of the service on loopback, for trying things and for rehearsing outages',
    options: optionsOf(
      {
        'port N': 'Port on 127.0.0.1 [a free one]',
        'scenario NAME': 'How it answers [ok]',
        'token-lifetime DURATION': 'Life of its tokens [60s]',
        'config PATH': 'Be the `service` that this configuration describes; its secrets are not read',
      },
      { scenario: { choices: scenarioNames } },
    ),
  },
  {
    name: 'demo',
    load: () => import('./demo.ts'),
    summary: 'Sandbox and daemon together in a temporary directory, with what to try next',
    options: {},
  },
  {
    name: 'completions',
    load: () => import('./completions.ts'),
    summary: 'Print the completions for a shell',
    positionals: 'bash|zsh|fish',
    options: {},
    details: [
      'For bash: source <(kyc-tokend completions bash). For zsh: source <(kyc-tokend completions zsh) after compinit. For fish: kyc-tokend completions fish | source.',
    ],
  },
]
