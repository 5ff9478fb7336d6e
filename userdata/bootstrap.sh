#!/bin/bash
# User data of every node: write the settings, fetch the agent, start it as a service. The agent does the rest.
# Placeholders in double underscores are replaced at synthesis. Idempotent.
set -euo pipefail
umask 022
readonly home=/opt/deeplearning log=/var/log/deeplearning-bootstrap.log
exec 3>&1 >>"$log" 2>&1

# Every image has a python3; the interpreter in the settings may be missing.
fail() {
  trap - ERR
  python3 "$home/fetch_agent.py" --failure "$home/settings.json" "$log" "$1" >&3 2>&3
  exit 1
}
trap 'fail "status $? of: $BASH_COMMAND"' ERR

mkdir -p "$home"
(umask 077 && cat >"$home/settings.json.new") <<'SETTINGS'
__SETTINGS__
SETTINGS
mv "$home/settings.json.new" "$home/settings.json"

cat >"$home/fetch_agent.py" <<'FETCH_AGENT'
__FETCH_AGENT__
FETCH_AGENT

"__PYTHON__" "$home/fetch_agent.py" "__AGENT_BUCKET__" "__AGENT_KEY__" "__AGENT_SHA256__" "__REGION__" "$home/agent"
(cd "$home/agent" && "__PYTHON__" -m deeplearning_agent --check)
cat >"$home/user_data.sh" <<'USER_DATA'
__USER_DATA__
USER_DATA
bash -eo pipefail "$home/user_data.sh"

cat >/etc/systemd/system/deeplearning-agent.service <<'UNIT'
[Unit]
Description=Forms the deep learning cluster and follows its membership
Wants=network-online.target
# remote-fs.target: after a reboot systemd mounts the entries of /etc/fstab, and the agent must not mount them too.
After=network-online.target remote-fs.target dlami-nvme.service
StartLimitIntervalSec=0

[Service]
Type=exec
WorkingDirectory=/opt/deeplearning/agent
# No PYTHONPATH: mount.efs and other programs in Python would import the agent's own boto3.
Environment=PYTHONUNBUFFERED=1
ExecStart=__PYTHON__ -m deeplearning_agent
Restart=always
RestartSec=10
# The run script survives a restart of the agent, and the agent a rank that ran out of memory.
KillMode=process
OOMPolicy=continue
# Limits of run scripts; EFA locks memory.
LimitMEMLOCK=infinity
LimitNOFILE=1048576

[Install]
WantedBy=multi-user.target
UNIT

systemctl daemon-reload
systemctl enable deeplearning-agent.service
# An image of a node starts that node's agent before user data runs: this one replaces it.
systemctl restart deeplearning-agent.service
