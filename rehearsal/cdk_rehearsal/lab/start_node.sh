#!/bin/sh
# Becomes a node: runs in new mount, uts, ipc and pid namespaces, inside the node's network namespace.
# usage: start_node.sh ROOT TARGETS CGROUP [FILE_SYSTEM_FOLDER...]
set -eu
root=$1 targets=$2 cgroup=$3

# systemd needs a cgroup that it may write.
# shellcheck source=rehearsal/cdk_rehearsal/lab/root_parts.sh
. "${0%/*}/root_parts.sh"
[ -n "${HAS_CGROUP:-}" ] || enter_cgroup "$root" "$cgroup" "$@"
shift 3

# Whoever reads standard output waits for one line; everything else goes to the console.
exec 3>&1 1>&2

mount_kernel "$root"
# What an instance's hypervisor says of itself, whatever this machine is: cloud-init knows EC2 by it.
# See check_run in lab/disk.py for the variable.
LIBMOUNT_FORCE_MOUNT2=always mount -t overlay -o "ro,lowerdir=$root/usr/lib/lab/sys:$root/sys" sys "$root/sys"
mount -t cgroup2 -o nosuid,noexec,nodev cgroup2 "$root/sys/fs/cgroup"
mount_devices "$root"

mount -t tmpfs -o mode=755 run "$root/run"
mkdir -m 1777 "$root/run/lock"
mkdir -m 700 "$root/run/lab"
mkdir "$root/run/lab/file-systems"
cp "$targets" "$root/run/lab/file-systems/targets.json"
for folder in "$@"; do
    mkdir "$root/run/lab/file-systems/${folder##*/}"
    mount --bind "$folder" "$root/run/lab/file-systems/${folder##*/}"
done

# A boot has an id of its own, which programs compare to see that the machine was restarted.
cat /proc/sys/kernel/random/uuid > "$root/run/lab/boot-id"
mount --bind "$root/run/lab/boot-id" "$root/proc/sys/kernel/random/boot_id"

change_root "$root"
echo ready >&3
exec 3>&-
# Without these capabilities systemd leaves this machine's clock, modules and debugging file systems alone.
exec env --ignore-environment PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    container=rehearsal setpriv --bounding-set=-sys_module,-sys_rawio,-sys_time \
    /sbin/init --log-target=journal --show-status=no
