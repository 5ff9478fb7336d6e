#!/usr/bin/env bash
# Starts TensorBoard on the master's private address, and says how to see it from your own computer.
# usage: tensorboard.sh FOLDER [PORT]        on the master; PORT: 6006 unless told otherwise
# The address can be reached from inside the cluster only, so a browser comes through SSH or Session Manager.
set -euo pipefail
folder=${1:?"usage: tensorboard.sh FOLDER [PORT]"}
port=${2:-6006}
facts=/opt/deeplearning/node.json

address=$(getent ahostsv4 "$(head -n 1 "$DEEPLEARNING_WORKERS_PATH")" | awk 'NR == 1 { print $1 }')
[ -n "$(ip -oneline -4 address show to "${address:-none}" 2> /dev/null)" ] || {
    echo "tensorboard.sh must run on the master, whose address is ${address:-not known}" >&2
    exit 1
}
instance=$(sed -n 's/.*"instance_id": *"\([^"]*\)".*/\1/p' "$facts" 2> /dev/null | head -n 1) || instance=
cat >&2 << HOW
On your own computer run one of these, then open http://localhost:$port
    ssh -N -L $port:$address:$port $(id -un)@THE-MASTER'S-PUBLIC-ADDRESS
    aws ssm start-session --target ${instance:-THE-MASTER-S-INSTANCE} \\
        --document-name AWS-StartPortForwardingSessionToRemoteHost \\
        --parameters host=$address,portNumber=$port,localPortNumber=$port
HOW
# The environment that jobs run in has TensorBoard beside TensorFlow.
PATH=/opt/deeplearning/environments/current/bin:$PATH exec tensorboard --logdir "$folder" --host "$address" --port "$port"
