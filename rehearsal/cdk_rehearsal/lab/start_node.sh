#!/bin/sh
# Becomes a node: runs in new mount, uts, ipc and pid namespaces, inside the node's network namespace.
# usage: start_node.sh ROOT TARGETS [FILE_SYSTEM_FOLDER...]
set -eu
root=$1 targets=$2
shift 2

# Whoever reads standard output waits for one line; everything else goes to the console.
exec 3>&1 1>&2

mount --make-rprivate /
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"

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

cd "$root"
pivot_root . .
umount -l .
hostname "$(cat /etc/hostname)"
echo ready >&3
exec 3>&-
exec env --ignore-environment PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    tini -- /usr/lib/lab/supervisor
