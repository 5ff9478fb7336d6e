#!/bin/bash
# Bootstrap action of every instance of an EMR cluster: write the settings, fetch the agent, prepare the node.
# Arguments: bucket, key and SHA-256 of the agent, region, interpreter, settings. Runs as hadoop; idempotent.
# The placeholder in double underscores is replaced at synthesis. The last line of standard error is the reason.
set -euo pipefail
readonly bucket=$1 key=$2 sha256=$3 region=$4 python=$5 settings=$6 home=/opt/deeplearning

# Some images hide /var/log, where the daemons of EMR keep their logs.
sudo -n chmod o+x /var/log
sudo -n install -D -m 600 /dev/stdin "$home/settings.json" <<<"$settings"
sudo -n install -m 644 /dev/stdin "$home/fetch_agent.py" <<'FETCH_AGENT'
__FETCH_AGENT__
FETCH_AGENT
sudo -n "$python" "$home/fetch_agent.py" "$bucket" "$key" "$sha256" "$region" "$home/agent"
cd "$home/agent"
exec sudo -n "$python" -m deeplearning_member prepare
