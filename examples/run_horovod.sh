#!/usr/bin/env bash
# Runs a Horovod program on every slot of the cluster. Start it on the master, as the login user.
# usage: run_horovod.sh PROGRAM [ARGUMENT...]
# Reads only the cluster's contract (DEEPLEARNING_*) and its hostfile, lines of `host slots=n`.
set -euo pipefail
hostfile=/opt/deeplearning/hostfile
# Jobs run in the cluster's environment, where it has one.
environment=/opt/deeplearning/environments/current/bin
[ ! -d "$environment" ] || PATH=$environment:$PATH

ranks=$(awk -F 'slots=' '{ total += $2 } END { print total }' "$hostfile")
hosts=$(wc -l < "$hostfile")
[ "$hosts" -eq "$DEEPLEARNING_WORKERS_COUNT" ] || {
    echo "$hostfile must list $DEEPLEARNING_WORKERS_COUNT hosts, got $hosts" >&2
    exit 1
}

# The interface that carries the address under which the cluster knows this node, its master.
address=$(getent ahostsv4 deeplearning-master | awk 'NR == 1 { print $1 }')
first=$(getent ahostsv4 "$(head -n 1 "$DEEPLEARNING_WORKERS_PATH")" | awk 'NR == 1 { print $1 }')
interface=$(ip -oneline -4 address show to "$address" | awk 'NR == 1 { print $2 }')
# Ranks of this host alone meet on the loopback interface, and Horovod takes no other for them.
[ "$hosts" -gt 1 ] || [ "$first" != "$address" ] || interface=lo

# Horovod's ssh turns the check of host keys off. The first value of an option wins, so this one keeps it on.
shim=$(mktemp -d)
trap 'rm -rf "$shim"' EXIT
printf '#!/bin/sh\nexec "%s" -o StrictHostKeyChecking=yes -o BatchMode=yes "$@"\n' "$(command -v ssh)" > "$shim/ssh"
chmod 700 "$shim/ssh"

PATH=$shim:$PATH horovodrun --gloo -np "$ranks" --hostfile "$hostfile" --network-interfaces "$interface" python3 "$@"
