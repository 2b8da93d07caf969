#!/bin/sh
# Usage: directories DIRECTORY. Makes the directories of a daemon, before it starts: DIRECTORY is root's, the daemon
# writes in DIRECTORY/files alone, and clients find its files by links. systemd-tmpfiles follows no link.
set -eu
run=/run/kyc-tokend
# Their sockets' units have made them, unless somebody removed them since.
for above in "$run" "$run/accounts"; do
	case $1 in "$above"/*) [ -d "$above" ] || echo "d $above 0751 root root" ;; esac
done | systemd-tmpfiles --create -
systemd-tmpfiles --create - <<END
d $1 0751 root root
d $1/files 0751 kyc-tokend kyc-tokend
L+ $1/token - - - - files/token
L+ $1/token.env - - - - files/token.env
L+ $1/token.json - - - - files/token.json
L+ $1/alert.json - - - - files/alert.json
d /var/lib/kyc-tokend 0700 kyc-tokend kyc-tokend
END
