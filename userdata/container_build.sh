#!/bin/sh
# Builds the environment of jobs in a container image, with the programs that build it on a cluster's master.
# The build context is /context. Only /opt/deeplearning/environments and the packages that the build installed remain;
# /opt/deeplearning/shared may be a cache of the builder, which is no part of the image.
set -eu
# Python brings tzdata, which asks for a time zone otherwise; a build has no terminal to answer on.
export DEBIAN_FRONTEND=noninteractive
home=/opt/deeplearning
packages=
command -v python3 >/dev/null || packages="ca-certificates python3"
# The containers of a job reach each other by SSH.
[ -x /usr/sbin/sshd ] || packages="$packages openssh-server"
command -v ssh >/dev/null || packages="$packages openssh-client"
command -v ip >/dev/null || packages="$packages iproute2"
if [ -n "$packages" ]; then
  apt-get update
  # shellcheck disable=SC2086
  apt-get install --yes --no-install-recommends $packages
fi
mkdir -p "$home/environments" /tmp/agent
cp /context/node.json "$home"
for file in /context/files/*; do
  [ ! -e "$file" ] || cp "$file" "$home/environments"
done
python3 -m zipfile -e /context/agent.zip /tmp/agent
(cd /tmp/agent && python3 -m deeplearning_command environment --build)
grep -q " $home/shared " /proc/self/mountinfo || rm -rf "$home/shared"
rm -rf "$home/node.json" "$home/provision" /tmp/agent /var/lib/apt/lists/*
