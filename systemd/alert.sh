#!/bin/sh
# Runs the operator's command when an alert of kyc-tokend is raised (argument `raised`) or gone (`resolved`), with the
# alert's JSON on its standard input; without such a command it only logs.
set -eu
alert=/run/kyc-tokend/alert.json
last=$RUNTIME_DIRECTORY/last.json
command=/etc/kyc-tokend/alert-command

log_only() {
	printf '<5>The alert is %s: ' "$1"
	cat
	echo
}
[ -x "$command" ] || command=log_only

# What happens while the command runs starts no second one: so look again until nothing is new.
told= status=0
while :; do
	if cat "$alert" >"$last.new" 2>/dev/null; then
		mv "$last.new" "$last"
		state=raised
	elif [ -e "$last" ]; then
		state=resolved
	else
		break
	fi
	now="$state $(cat "$last")"
	[ "$now" != "$told" ] || break
	"$command" "$state" <"$last" || status=$?
	told=$now
	[ "$state" = raised ] || rm "$last"
done
exit "$status"
