#!/bin/sh
# Becomes a node: runs in new mount, uts, ipc and pid namespaces, inside the node's network namespace.
# usage: start_node.sh ROOT TARGETS CGROUP [FILE_SYSTEM_FOLDER...]
set -eu
root=$1 targets=$2 cgroup=$3

# A cgroup of the node's own, then this script again in a cgroup namespace whose root it is: systemd needs one that it
# may write. It groups processes and limits nothing. cgroup2 can be mounted beside the controllers of cgroup v1, too.
if [ -z "${HAS_CGROUP:-}" ]; then
    mount --make-rprivate /
    mount -t cgroup2 cgroup2 "$root/mnt"
    # Another rehearsal that ends removes empty cgroups: once more, then.
    for _ in 1 2; do
        mkdir -p "$root/mnt/$cgroup"
        echo $$ > "$root/mnt/$cgroup/cgroup.procs" && break
    done
    umount "$root/mnt"
    HAS_CGROUP=1 exec unshare --cgroup sh "$0" "$@"
fi
shift 3

# Whoever reads standard output waits for one line; everything else goes to the console.
exec 3>&1 1>&2

mount -t proc proc "$root/proc"
# The kernel's settings are this machine's; those of the network are the node's.
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
mount --rbind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
# What an instance's hypervisor says of itself, whatever this machine is: cloud-init knows EC2 by it.
# See check_run in lab/node.py for the variable.
LIBMOUNT_FORCE_MOUNT2=always mount -t overlay -o "ro,lowerdir=$root/usr/lib/lab/sys:$root/sys" sys "$root/sys"
mount -t cgroup2 -o nosuid,noexec,nodev cgroup2 "$root/sys/fs/cgroup"

# The devices of a minimal machine; /dev of the host stays out of sight.
mount -t tmpfs -o mode=755,size=1m dev "$root/dev"
for device in null zero full random urandom tty; do
    : > "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"

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

cd "$root"
pivot_root . .
umount -l .
hostname "$(cat /etc/hostname)"
echo ready >&3
exec 3>&-
# Without these capabilities systemd leaves this machine's clock, modules and debugging file systems alone.
exec env --ignore-environment PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    container=rehearsal setpriv --bounding-set=-sys_module,-sys_rawio,-sys_time \
    /sbin/init --log-target=journal --show-status=no
