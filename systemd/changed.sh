#!/bin/sh
# Usage: changed UNIT. Reloads or restarts a unit that runs, once for each token. It is run at a change of
# the token file and every minute: systemd forgets a change that comes while this runs, before it watches
# again, or in a daemon-reload.
set -eu
unit=$1
file=${KYC_TOKEN_FILE:-/run/kyc-tokend/files/token}
splay=${KYC_SPLAY:-5}
# The file as it was when this was last done.
record=$RUNTIME_DIRECTORY/$unit

# Fails where there is no token: a program that cannot read one is left as it is.
identity() {
	stat -c '%d %i %y %z' -- "$file" 2>/dev/null
}

# The unit has read the file that is there: it has been started since.
is_older_than_unit() {
	started=$(systemctl show --timestamp=us+utc --property InactiveExitTimestamp --value -- "$unit")
	[ -n "$started" ] && [ -z "$(find "$file" -newerct "$started")" ]
}

# A part of the splay, so that the programs of many hosts do not restart at once.
pause() {
	milliseconds=$(($(od -An -N4 -tu4 /dev/urandom) % (splay * 1000 + 1)))
	sleep "$((milliseconds / 1000)).$(printf %03d $((milliseconds % 1000)))"
}

if [ ! -e "$record" ] && now=$(identity) && is_older_than_unit; then echo "$now" >"$record"; fi
while now=$(identity) && [ "$now" != "$(cat "$record" 2>/dev/null)" ]; do
	pause
	now=$(identity) || break
	state=$(systemctl is-active -- "$unit") || true
	case $state in
	# It may have read the former token already, and cannot be reloaded yet. The timer comes back.
	activating) break ;;
	# It reads the token when it is started.
	inactive | failed | deactivating) ;;
	*)
		echo "The token has changed: $unit is reloaded or restarted"
		systemctl try-reload-or-restart -- "$unit"
		;;
	esac
	echo "$now" >"$record"
done
