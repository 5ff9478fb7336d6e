#!/bin/sh
# Becomes a container: runs in new mount, uts, ipc and pid namespaces, inside the container's network namespace.
# usage: start_container.sh ROOT FOLDER [SOURCE=TARGET=ro|rw...] -- COMMAND...
# FOLDER has hosts, hostname, and environment: NAME=VALUE, each ended by a zero byte. A container has no init, no
# metadata service, and files of its own for its names, which container engines mount.
set -eu
root=$1 folder=$2
shift 2

# Whoever reads standard output gets the program's alone.
exec 3>&1 1>&2

mount --make-rprivate /
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
mount --rbind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
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

for name in hosts hostname; do
    : >> "$root/etc/$name"
    mount --bind "$folder/$name" "$root/etc/$name"
done
# On AWS each container is on an instance of its own, which has booted.
cat /proc/sys/kernel/random/uuid > "$folder/boot-id"
mount --bind "$folder/boot-id" "$root/proc/sys/kernel/random/boot_id"
while [ "$1" != -- ]; do
    source=${1%%=*} rest=${1#*=}
    target=${rest%=*}
    mkdir -p "$root$target"
    mount --bind "$source" "$root$target"
    [ "${rest##*=}" = rw ] || mount -o remount,bind,ro "$root$target"
    shift
done
shift
cp "$folder/environment" "$root/run/environment"
cd "$root"
pivot_root . .
umount -l .
hostname "$(cat /etc/hostname)"
exec 1>&3 3>&-
exec setpriv --bounding-set=-sys_module,-sys_rawio,-sys_time,-sys_boot /usr/bin/python3 -I -c 'import os, sys
words = open("/run/environment", "rb").read().split(b"\0")
os.remove("/run/environment")
pairs = dict(word.split(b"=", 1) for word in words if word)
os.chdir("/")
os.execvpe(sys.argv[1], sys.argv[1:], pairs)' "$@"
