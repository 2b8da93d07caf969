#!/bin/sh
# Usage: changed UNIT. Reloads or restarts a unit that runs, after the token file has changed. systemd forgets a change
# that comes while this runs, so it looks at the file again until it has done so for what is there.
set -eu
unit=$1
file=${KYC_TOKEN_FILE:-/run/kyc-tokend/token}
splay=${KYC_SPLAY:-5}

# Fails where there is no token: a program that cannot read one is left as it is.
identity() {
	stat -c '%d %i %y %z' -- "$file" 2>/dev/null
}

# A part of the splay, so that the programs of many hosts do not restart at once.
pause() {
	milliseconds=$(($(od -An -N4 -tu4 /dev/urandom) % (splay * 1000 + 1)))
	sleep "$((milliseconds / 1000)).$(printf %03d $((milliseconds % 1000)))"
}

done_for=
while now=$(identity) && [ "$now" != "$done_for" ]; do
	pause
	done_for=$(identity) || break
	systemctl try-reload-or-restart -- "$unit"
done
