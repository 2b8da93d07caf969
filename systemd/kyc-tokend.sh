#!/bin/sh
# /usr/bin/kyc-tokend. The commands for programs have a small one of their own, which starts in half the time.
case ${1-} in
token | watch | status | reload | reject | exec) program=client-cli.cjs ;;
*) program=cli.cjs ;;
esac

fail() {
	echo "$2" >&2
	exit "$1"
}

# Without these, Node crashes before its first statement, and takes a closed output for one that nobody reads.
# shellcheck disable=SC3045 # Each sh of Debian and Fedora has -S. Node raises it again, as far as it may.
{ ulimit -S -n 32; } 2>/dev/null ||
	fail 75 'kyc-tokend needs 32 open files, and this process may have fewer (ulimit -n): raise that limit, in a unit LimitNOFILE=.'
case ${1-} in
exec | run) ;;
*) { true 3>&1; } 2>/dev/null || fail 70 'The output cannot be written (it is closed).' ;;
esac

# Settings of the caller for its own Node. `exec` gives them back to the command that it becomes.
for name in NODE_OPTIONS NODE_PATH NODE_V8_COVERAGE NODE_DEBUG NODE_DEBUG_NATIVE NODE_REDIRECT_WARNINGS \
	NODE_PENDING_DEPRECATION NODE_PRESERVE_SYMLINKS NODE_PRESERVE_SYMLINKS_MAIN NODE_COMPILE_CACHE \
	NODE_EXTRA_CA_CERTS NODE_TLS_REJECT_UNAUTHORIZED NODE_USE_ENV_PROXY NODE_USE_SYSTEM_CA NODE_ICU_DATA \
	OPENSSL_CONF; do
	eval "[ -z \"\${$name+set}\" ] || { export KYC_TOKEND_CALLER_$name=\"\$$name\" && unset $name; }"
done

exec /usr/lib/kyc-tokend/node "/usr/lib/kyc-tokend/$program" "$@"
