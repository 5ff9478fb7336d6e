#!/bin/sh
# Finishes a new root file system; mmdebstrap runs this as a hook.
# usage: finish_root.sh ROOT ARCHIVE PACKAGE...
# What nodes may install later is downloaded to ARCHIVE, in the versions that go with ROOT.
set -eu
root=$1 archive=$2
shift 2

echo "I: downloading what nodes may install with apt" >&2
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
apt-get clean
apt-get --yes --quiet install --download-only --no-install-recommends "$@"
mkdir "$archive"
mv "$root"/var/cache/apt/archives/*.deb "$archive/"

printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' > "$root/etc/hosts"

# Its unit looks for ext4 snapshots, which no node has. Timers clean and update an image that lives for minutes here.
rm -f "$root/etc/systemd/system/multi-user.target.wants/e2scrub_reap.service"
rm -rf "$root/etc/systemd/system/timers.target.wants"

# The lab has no DHCP server: addresses are there before the node boots, and cloud-init would wait for a lease.
rm -f "$root/sbin/dhclient"

# An image carries no identity: keys and ids are made at boot. The lab says where packages come from.
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/machine-id" "$root/etc/hostname" "$root/etc/resolv.conf"
rm -f "$root/etc/apt/sources.list" "$root"/etc/apt/sources.list.d/*
: > "$root/etc/machine-id"
