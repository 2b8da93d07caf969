#!/bin/sh
# Usage: alert DIRECTORY. Runs the operator's command for each alert of the daemon whose runtime directory this is:
# with `raised` (a reminder too) or `resolved` as its argument, and the alert's JSON on its standard input. Without
# such a command it only logs. It compares what the files say with what the command was run for, so that a change
# during a run is not lost, and a run that failed is tried again by the unit.
set -eu
directory=$1
cd "$RUNTIME_DIRECTORY"
command=/etc/kyc-tokend/alert-command
[ -e "$command" ] || command=log_only

log_only() {
	printf '<5>The alert is %s: ' "$1"
	cat
}

# Another host of the fleet asked the service, and runs its own command for this alert.
is_of_another_host() {
	grep -Eq '"askedBy": ?"' "$1"
}

# Runs the command and remembers what it was run for, once it succeeded.
notify() {
	if ! is_of_another_host next; then
		if [ -e "$command" ] && [ ! -x "$command" ]; then
			echo "<3>The alert command cannot be run by this unit: sudo chmod 755 $command"
			exit 126
		fi
		"$command" "$1" <next
	fi
	mv next "done.$1"
}

# Copies a file of the daemon to `next`; fails where it is not there or where the command was run for it.
differs() {
	cp -p "$directory/$1" next 2>/dev/null && ! cmp -s next "done.$2"
}

is_newer() {
	[ -n "$(find "$1" -newer "$2" 2>/dev/null)" ]
}

# `open` is the last alert that was seen and is not resolved.
resolved=$directory/alert-resolved.json
while :; do
	if [ -e open ] && { is_newer "$resolved" open || [ ! -e "$directory/alert.json" ]; }; then
		# The daemon says what was resolved, unless it ended before it could.
		if is_newer "$resolved" open; then cp -p "$resolved" next; else cp -p open next; fi
		notify resolved
		rm -f open done.raised
	elif differs alert.json raised; then
		cp -p next open
		notify raised
	else
		break
	fi
done
rm -f next
