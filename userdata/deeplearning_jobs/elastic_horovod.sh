#!/usr/bin/env bash
# Runs a program with Horovod Elastic on the cluster, and goes on when nodes are lost, replaced or added.
# usage: bash elastic_horovod.sh [PROGRAM [ARGUMENT...]]        default: $EFS_MOUNT/train_elastic.py
# Start it on the master, as the login user. The program must write checkpoints and go on from the newest: after a
# failure of the whole job it is started anew, ELASTIC_TRIES times in all. ELASTIC_STARTER, python3 unless it is set,
# starts the program of each rank; where it is set to nothing, PROGRAM is a command line of its own.
# Reads only the cluster's contract (EFS_MOUNT) and /opt/deeplearning/discover_hosts, which prints `host:slots`.
set -euo pipefail
discover=/opt/deeplearning/discover_hosts
tries=${ELASTIC_TRIES:-10}
pause=${ELASTIC_PAUSE_SECONDS:-5}
framework=${ELASTIC_WARM_UP:-horovod.torch}
starter=${ELASTIC_STARTER-python3}
python=${ELASTIC_PYTHON:-python3}
[ $# -gt 0 ] || set -- "$EFS_MOUNT/train_elastic.py"

# Our own line of discover_hosts, and the interface and address under which the cluster knows this node.
for line in $("$discover"); do
    address=$(getent ahostsv4 "${line%:*}" | awk 'NR == 1 { print $1 }')
    interface=$(ip -oneline -4 address show to "${address:-none}" 2> /dev/null | awk 'NR == 1 { print $2 }')
    [ -z "$interface" ] || { master=$line && break; }
done
[ -n "${master:-}" ] || { echo "$discover must list this node, got: $("$discover")" >&2 && exit 1; }

private=$(mktemp -d)
shared=$(mktemp -d "$EFS_MOUNT/.run-elastic-XXXXXX")
trap 'rm -rf "$private" "$shared"' EXIT

# Horovod's ssh turns the check of host keys off. The first value of an option wins, so this one keeps it on.
# Horovod takes a rank for lost when its ssh ends, which ssh by itself never does when the host falls silent: it asks
# every 2 s and gives up after 2 questions without an answer, 6 s at most. A new connection must come within 5 s.
cat > "$private/ssh" << SHIM
#!/bin/sh
exec "$(command -v ssh)" -o StrictHostKeyChecking=yes -o BatchMode=yes -o ConnectTimeout=5 \\
    -o ServerAliveInterval=2 -o ServerAliveCountMax=2 "\$@"
SHIM

# Horovod asks this every second.
# - The first answer is this node alone: Horovod orders hosts by when it saw them first, and so rank 0 is here, where
#   horovodrun can reach it as long as it lives. See the time-out below.
# - Another host is listed once the framework has been loaded there. All ranks wait for one that starts, and where an
#   image's disk is read for the first time that takes minutes; so they go on training meanwhile.
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

# What each rank runs. A rank that ends with 0 has seen the job's end: horovodrun's own status may hide a lost job.
cat > "$shared/rank" << 'RANK'
#!/bin/sh
done=$1
shift
"$@" && touch "$done"
RANK
chmod 700 "$private/ssh" "$private/discover_hosts" "$shared/rank"

# horovodrun with a time-out for connections. It tells rank 0 of changed hosts, three times if need be, and handles no
# loss meanwhile: when rank 0's host is the lost one, its connections would wait for minutes each.
launch='import socket; socket.setdefaulttimeout(1.5); from horovod.runner.launch import run_commandline as run; run()'

# So long ranks wait for one that starts; when one never comes, the whole job is started anew. A lost rank is found in
# seconds by a program that looks at its connections as train_elastic.py does, and in this time by any other.
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
    # other host could join on the loopback interface, so each rank is told the right one and the right address.
    # --elastic-timeout: so long may a host be away that was there when the job was started; then it is started anew.
    # --blacklist-cooldown-range: a host that was lost and came back is taken again after 20 s, at most 60 s.
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
