#!/bin/sh
# Usage: alert DIRECTORY. Runs the operator's command for each alert of the daemon that writes in this directory:
# with `raised` (a reminder too) or `resolved` as its argument, and the alert's JSON on its standard input. Without
# such a command it only logs. A command that fails is run again after half a minute; that is logged once, and then
# once an hour, and systemd shows it as the status of the unit.
#
# Its own directory holds three alerts, so that a change during a run is not lost: `next`, for which the
# command is about to run; `open`, the last one that is not resolved; and `last`, the one for which the command
# was run.
set -eu
file=$1/alert.json
cd "$RUNTIME_DIRECTORY"
command=/etc/kyc-tokend/alert-command
pace=30
# Seconds since the epoch at which the present failure was logged.
logged_at=0

state() {
	[ -z "${NOTIFY_SOCKET:-}" ] || systemd-notify --status="$1"
}

is_resolved() {
	grep -Eq '"state": ?"resolved"' next
}

# Holds for an hour after a failure was logged: what repeats it in that time is not.
is_logged() {
	[ $(($(date +%s) - logged_at)) -lt 3600 ]
}

# Runs the command for `next`. What it prints is logged, unless it repeats a failure that is.
run() {
	if [ ! -e "$command" ]; then
		printf '<5>The alert is %s: ' "$1"
		cat next
	elif is_logged; then
		timeout --kill-after=5 120 "$command" "$1" <next >/dev/null 2>&1
	else
		timeout --kill-after=5 120 "$command" "$1" <next
	fi
}

# Says that the command failed with this status.
failed() {
	state "exit status $1 at $(date -u +%FT%TZ), run again every $pace s"
	if is_logged; then return; fi
	remedy=
	if [ ! -x "$command" ]; then remedy=": it may not be executed by this unit, sudo chmod 755 $command"; fi
	echo "<3>The alert command failed (exit status $1) and is run again every $pace s$remedy"
	logged_at=$(date +%s)
}

# Has the command run, and remembers the alert for which it succeeded.
notify() {
	run "$1" || {
		failed "$?"
		return 1
	}
	logged_at=0
	state ''
	mv next last
	if [ "$1" = resolved ]; then rm -f open; fi
}

# Copies the alert to `next`; fails where there is none. The daemon's user may have put anything there: a FIFO, or a
# file without an end.
copy() {
	timeout 10 head -c 65536 -- "$file" >next 2>/dev/null && [ -s next ]
}

while :; do
	if copy; then
		if cmp -s next last; then break; fi
		event=resolved
		if ! is_resolved; then
			event=raised
			cp next open
		fi
	elif [ -e open ]; then
		# The daemon says that an alert is resolved, unless it ended before it could.
		cp open next
		event=resolved
	else
		break
	fi
	notify "$event" || sleep "$pace"
done
