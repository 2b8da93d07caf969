#!/bin/sh
# /usr/bin/kyc-tokend. `kyc-tokend token` is answered here, without starting anything, from the line that the daemon
# keeps for it (`VALID_FROM VALID_UNTIL TOKEN`, in seconds of /proc/uptime) where that is certain to be right. Every
# other command, and every doubt, is for the full program, which then says and does what there is to say and do.

quick() {
	[ -z "${KYC_TOKEND_SOCKET+set}" ] && [ -S /run/kyc-tokend/ipc.sock ] && [ -w /run/kyc-tokend/ipc.sock ] || return
	# In some containers /proc/uptime is not the kernel's and begins with the container. The kernel's has no size.
	[ -s /proc/uptime ] && return 1
	# Whatever of these the caller has exported, the full program would inherit with our values.
	unset from until token more uptime idle bare number
	IFS=' '
	read -r from until token more </run/kyc-tokend/token.front || return
	read -r uptime idle </proc/uptime || return
	[ -z "$more" ] || return

	for number in "$from" "$until" "$uptime"; do
		case ${number%%.*} in '' | ???????????*) return 1 ;; esac
		case $number in *[!0123456789.]*) return 1 ;; esac
	done
	# Whole seconds, each rounded against ourselves.
	case $from in *.*) [ "${from%%.*}" -lt "${uptime%%.*}" ] ;; *) [ "$from" -le "${uptime%%.*}" ] ;; esac || return
	[ "${uptime%%.*}" -lt "${until%%.*}" ] || return

	# RFC 6750, spelt out because ranges depend on the locale.
	bare=${token%"${token##*[!=]}"}
	case $bare in
	'' | '~'* | *[!ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~+/-]*) return 1 ;;
	esac

	trap '' PIPE
	printf '%s\n' "$token"
}

case $#/${1-}/${2-}/${3-} in
1/token// | 3/token/--format/raw | 2/token/--format=raw/)
	if { quick; } 2>/dev/null; then exit 0; fi
	;;
esac
exec /usr/lib/kyc-tokend/node /usr/lib/kyc-tokend/cli.cjs "$@"
