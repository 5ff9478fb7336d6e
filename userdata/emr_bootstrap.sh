#!/bin/bash
# Bootstrap action of every instance of an EMR cluster. Arguments: SSM parameter of the release, region.
# Another text replaces every cluster on EMR, so whatever a release changes is in that parameter or in the agent.
# Runs as hadoop; idempotent. The placeholders in double underscores are replaced at synthesis. The last line of
# standard error is the reason.
set -euo pipefail
readonly parameter=$1 region=$2 home=/opt/deeplearning

sudo -n install -D -m 644 /dev/stdin "$home/fetch_agent.py" <<'FETCH_AGENT'
__FETCH_AGENT__
FETCH_AGENT
sudo -n install -m 644 /dev/stdin "$home/prepare_member.py" <<'PREPARE_MEMBER'
__PREPARE_MEMBER__
PREPARE_MEMBER
exec sudo -n /usr/bin/python3 "$home/prepare_member.py" "$parameter" "$region"
