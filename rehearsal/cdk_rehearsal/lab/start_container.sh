#!/bin/sh
# Becomes a container: runs in new mount, uts, ipc and pid namespaces, inside the container's network namespace.
# usage: start_container.sh ROOT CGROUP [(rw|ro) FOLDER TARGET]... -- COMMAND...
# COMMAND is the first process; there is no init and no metadata service.
set -eu
root=$1
# shellcheck source=rehearsal/cdk_rehearsal/lab/root_parts.sh
. "${0%/*}/root_parts.sh"
[ -n "${HAS_CGROUP:-}" ] || enter_cgroup "$root" "$2" "$@"
shift 2

# Whoever reads standard output waits for one line; what follows it is the program's.
exec 3>&1 1>&2

mount_kernel "$root"
mount -t cgroup2 -o ro,nosuid,noexec,nodev cgroup2 "$root/sys/fs/cgroup"
mount_devices "$root"
# On AWS each container is on an instance of its own, which has booted.
cat /proc/sys/kernel/random/uuid > "$root/dev/boot-id"
mount --bind "$root/dev/boot-id" "$root/proc/sys/kernel/random/boot_id"
rm "$root/dev/boot-id"
while [ "$1" != -- ]; do
    mkdir -p "$root$3"
    mount --bind "$2" "$root$3"
    [ "$1" = rw ] || mount -o remount,bind,ro "$root$3"
    shift 3
done
shift
change_root "$root"
echo ready >&3
exec "$@" >&3 2>&1 3>&-
