#!/bin/sh
# Builds the environment of jobs in a container image, with the programs that build it on a cluster's master.
# The build context is /context. Only /opt/deeplearning/environments and the packages that the build installed remain.
set -eu
# Python brings tzdata, which asks for a time zone otherwise; a build has no terminal to answer on.
export DEBIAN_FRONTEND=noninteractive
home=/opt/deeplearning
# Containers of SageMaker reach one another by SSH, and ask `ip` for their address. Each makes host keys of its own.
packages="iproute2 openssh-client openssh-server"
command -v python3 >/dev/null || packages="$packages ca-certificates python3"
apt-get update
# shellcheck disable=SC2086 # words
apt-get install --yes --no-install-recommends $packages
rm -f /etc/ssh/ssh_host_*
mkdir -p "$home/environments" /tmp/agent
cp /context/node.json "$home"
for file in /context/files/*; do
  [ ! -e "$file" ] || cp "$file" "$home/environments"
done
python3 -m zipfile -e /context/agent.zip /tmp/agent
(cd /tmp/agent && python3 -m deeplearning_command environment --build)
rm -rf "$home/node.json" "$home/provision" "$home/shared" /tmp/agent /var/lib/apt/lists/*
