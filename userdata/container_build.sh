#!/bin/sh
# Builds the environment of jobs in a container image, with the programs that build it on a cluster's master.
# The build context is /context. Only /opt/deeplearning/environments and the packages that the build installed remain.
set -eu
# Python brings tzdata, which asks for a time zone otherwise; a build has no terminal to answer on.
export DEBIAN_FRONTEND=noninteractive
home=/opt/deeplearning
if ! command -v python3 >/dev/null; then
  apt-get update
  apt-get install --yes --no-install-recommends ca-certificates python3
fi
mkdir -p "$home/environments" /tmp/agent
cp /context/node.json "$home"
for file in /context/files/*; do
  [ ! -e "$file" ] || cp "$file" "$home/environments"
done
python3 -m zipfile -e /context/agent.zip /tmp/agent
(cd /tmp/agent && python3 -m deeplearning_command environment --build)
rm -rf "$home/node.json" "$home/provision" "$home/shared" /tmp/agent /var/lib/apt/lists/*
