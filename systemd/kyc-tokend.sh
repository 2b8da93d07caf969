#!/bin/sh
# /usr/bin/kyc-tokend. `kyc-tokend token` is answered here, without starting anything, from the line that the daemon
# keeps for it (`VALID_FROM VALID_UNTIL TOKEN`, in whole seconds of /proc/uptime) where that is certain to be right, and
# `kyc-tokend exec -- CMD` likewise. Every other command, and every doubt, is for the full program, or for the small one that
# has the commands of clients alone.

# $1: printed before the token. $2: the account that --account names, if there is one.
quick() {
	[ -z "${KYC_TOKEND_SOCKET+set}" ] || return
	# The full program would inherit our values of those that the caller has exported.
	unset directory from until token more uptime visible number
	directory=/run/kyc-tokend
	if [ $# -gt 1 ] || [ -n "${KYC_TOKEND_ACCOUNT+set}" ]; then
		case ${2-$KYC_TOKEND_ACCOUNT} in
		*[!abcdefghijklmnopqrstuvwxyz0123456789-]*) return 1 ;;
		esac
		directory=$directory/accounts/${2-$KYC_TOKEND_ACCOUNT}
	fi
	[ -S "$directory/ipc.sock" ] && [ -w "$directory/ipc.sock" ] || return
	# In some containers /proc/uptime is not the kernel's and begins with the container. The kernel's has no size.
	[ -s /proc/uptime ] && return 1
	read -r from until token more <"$directory/token.front" || return
	read -r uptime _ </proc/uptime || return
	[ -z "$more" ] || return

	# All in whole seconds, rounded down.
	uptime=${uptime%%.*}
	for number in "$from" "$until"; do
		case $number in *[!0123456789]* | ???????????*) return 1 ;; esac
	done
	[ "$from" -le "$uptime" ] && [ "$uptime" -lt "$until" ] || return

	# Visible ASCII but quotes, backslash, comma and semicolon; spelt out because ranges depend on the locale.
	visible=']!#$%&()*+./:<=>?@[^_`{|}~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-'
	case $token in '' | *[!$visible]*) return 1 ;; esac

	trap '' PIPE
	printf '%s%s\n' "$1" "$token"
}

# Only the standard descriptors are open: beside them are that of this script, and that by which the shell reads the directory.
is_alone() {
	set -- /proc/self/fd/*
	[ $# -eq 5 ]
}

# $1: a command. Prints the token if the command can be run.
quick_for() {
	program=$(command -v "$1") && [ -f "$program" ] && [ -x "$program" ] && quick ''
}

if [ $# -gt 2 ] && [ "$1 $2" = 'exec --' ] && is_alone && KYC_ACCESS_TOKEN=$(exec 2>/dev/null && quick_for "$3"); then
	shift 2
	export KYC_ACCESS_TOKEN
	exec "$@"
fi
if case $#/${1-}/${2-} in
	1/token/ | 2/token/--format=raw) { quick ''; } 2>/dev/null ;;
	2/token/--format=header) { quick 'Authorization: Bearer '; } 2>/dev/null ;;
	2/token/--account=*) { quick '' "${2#--account=}"; } 2>/dev/null ;;
	3/token/--format)
		case $3 in
		raw) { quick ''; } 2>/dev/null ;;
		header) { quick 'Authorization: Bearer '; } 2>/dev/null ;;
		*) false ;;
		esac
		;;
	3/token/--account) { quick '' "$3"; } 2>/dev/null ;;
	*) false ;;
	esac then
	exit 0
fi
case ${1-} in
token | watch | status | reject | exec) exec /usr/lib/kyc-tokend/node /usr/lib/kyc-tokend/client-cli.cjs "$@" ;;
*) exec /usr/lib/kyc-tokend/node /usr/lib/kyc-tokend/cli.cjs "$@" ;;
esac
