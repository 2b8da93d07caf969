#!/bin/sh
# /usr/bin/kyc-tokend. The commands that programs use have a small program of their own, which starts in half the time.
case ${1-} in
token | watch | status | reject | exec) exec /usr/lib/kyc-tokend/node /usr/lib/kyc-tokend/client-cli.cjs "$@" ;;
*) exec /usr/lib/kyc-tokend/node /usr/lib/kyc-tokend/cli.cjs "$@" ;;
esac
