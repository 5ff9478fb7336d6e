#!/usr/bin/env bash
# Runs a program with Horovod Elastic on the cluster, and continues when nodes are lost, replaced or added.
# usage: bash elastic_horovod.sh [PROGRAM [ARGUMENT...]]        default: $EFS_MOUNT/train_elastic.py
# Start it on the master, as the login user. The program must write checkpoints and resume from the newest: after a
# failure of the whole job it is restarted, ELASTIC_TRIES attempts in all. ELASTIC_STARTER, by default python3, starts
# the program of each rank; if it is empty, PROGRAM is a complete command line.
# Reads only the cluster's contract (EFS_MOUNT) and /opt/deeplearning/discover_hosts, which prints `host:slots`.
set -euo pipefail
discover=/opt/deeplearning/discover_hosts
tries=${ELASTIC_TRIES:-10}
pause=${ELASTIC_PAUSE_SECONDS:-5}
framework=${ELASTIC_WARM_UP:-horovod.torch}
starter=${ELASTIC_STARTER-python3}
python=${ELASTIC_PYTHON:-python3}
[ $# -gt 0 ] || set -- "$EFS_MOUNT/train_elastic.py"

# This node's line of discover_hosts, and its interface and address in the cluster.
for line in $("$discover"); do
    address=$(getent ahostsv4 "${line%:*}" | awk 'NR == 1 { print $1 }')
    interface=$(ip -oneline -4 address show to "${address:-none}" 2> /dev/null | awk 'NR == 1 { print $2 }')
    [ -z "$interface" ] || { master=$line && break; }
done
[ -n "${master:-}" ] || { echo "$discover must list this node, got: $("$discover")" >&2 && exit 1; }

private=$(mktemp -d)
shared=$(mktemp -d "$EFS_MOUNT/.run-elastic-XXXXXX")
trap 'rm -rf "$private" "$shared"' EXIT

# Horovod's ssh turns the check of host keys off. The first value of an option wins, so this one keeps it.
# For Horovod a rank is lost when its ssh ends, which by default never happens when the host becomes silent: here ssh
# probes every 2 s and ends after 2 probes without a response, 6 s at most. A connection must be made within 5 s.
cat > "$private/ssh" << SHIM
#!/bin/sh
exec "$(command -v ssh)" -o StrictHostKeyChecking=yes -o BatchMode=yes -o ConnectTimeout=5 \\
    -o ServerAliveInterval=2 -o ServerAliveCountMax=2 "\$@"
SHIM

# Horovod runs this every second.
# - The first output is only this node: Horovod orders hosts by their first appearance, so rank 0 is here, where
#   horovodrun can always reach it. See the time-out below.
# - Another host is listed once the framework has been loaded there. All ranks wait for one that starts, and the first
#   read of an image's disk takes minutes; until then they continue to train.
cat > "$private/discover_hosts" << DISCOVER
#!/bin/sh
cd "$private" || exit 1
echo "$master"
[ -e asked ] && is_first=false || is_first=true
touch asked
"$discover" | grep -vxF "$master" | while IFS= read -r line; do
    host=\${line%:*}
    "\$is_first" || [ ! -e "warm-\$host" ] || echo "\$line"
    mkdir "warming-\$host" 2> /dev/null || continue
    { ./ssh "\$host" "$python" -c "'import $framework'" && touch "warm-\$host" || { sleep 5; rmdir "warming-\$host"; }
    } < /dev/null > /dev/null 2>&1 &
done
DISCOVER

# Script of each rank. A rank that ends with 0 has completed the job: horovodrun's own status may hide a lost job.
cat > "$shared/rank" << 'RANK'
#!/bin/sh
done=$1
shift
"$@" && touch "$done"
RANK
chmod 700 "$private/ssh" "$private/discover_hosts" "$shared/rank"

# horovodrun with a time-out for connections. It notifies rank 0 of changed hosts, up to three times, and handles no
# loss meanwhile: if rank 0's host is the lost one, each of its connections would wait for minutes.
launch='import socket; socket.setdefaulttimeout(1.5); from horovod.runner.launch import run_commandline as run; run()'

# Time for which ranks wait for one that starts; without it, the whole job is restarted. A program that checks its
# connections, as train_elastic.py does, detects a lost rank in seconds, any other in this time.
export HOROVOD_GLOO_TIMEOUT_SECONDS=${HOROVOD_GLOO_TIMEOUT_SECONDS:-60}

count_slots() { awk -F : '{ total += $NF } END { print total + 0 }'; }
trap 'exit 143' INT TERM

for ((try = 1; try <= tries; try++)); do
    # Start with every host that is ready within half a minute; the others join when they are.
    for ((second = 0; second < 30; second++)); do
        ranks=$("$private/discover_hosts" | count_slots)
        [ "$ranks" -lt "$("$discover" | count_slots)" ] || break
        sleep 1
    done
    rm -f "$private/asked"
    began=$SECONDS
    # --network-interfaces: with any other, Horovod does not start on one host; without, not on fewer than two. But no
    # other host could join on the loopback interface, so each rank gets the right interface and address.
    # --elastic-timeout: time for which a host of the job's start may be absent before the job is restarted.
    # --blacklist-cooldown-range: a lost host that returns is used again after 20 s, at most 60 s.
    PATH=$private:$PATH python3 -c "$launch" --gloo -np "$ranks" --min-np 1 \
        --host-discovery-script "$private/discover_hosts" --network-interfaces lo \
        --elastic-timeout 60 --blacklist-cooldown-range 10 60 \
        env HOROVOD_GLOO_RENDEZVOUS_ADDR="$address" HOROVOD_GLOO_IFACE="$interface" NCCL_SOCKET_IFNAME="$interface" \
        "$shared/rank" "$shared/done" ${starter:+"$starter"} "$@" && status=0 || status=$?
    [ ! -e "$shared/done" ] || exit 0
    echo "the job ended with status $status after $((SECONDS - began)) s, try $try of $tries" >&2
    # Only failures in quick succession count.
    [ $((SECONDS - began)) -lt 600 ] || try=0
    sleep "$pause"
done
exit 1
