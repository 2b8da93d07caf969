#!/bin/sh
# /usr/bin/kyc-tokend. The commands for programs have a small one of their own, which starts in half the time.
case ${1-} in
token | watch | status | reject | exec) program=client-cli.cjs ;;
*) program=cli.cjs ;;
esac
exec /usr/lib/kyc-tokend/node "/usr/lib/kyc-tokend/$program" "$@"
