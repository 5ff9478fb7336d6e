#!/bin/sh
# Parts of what becomes a node or a container; start_node.sh and start_container.sh read it. They run in new mount, uts,
# ipc and pid namespaces, inside a network namespace.
set -eu

# usage: enter_cgroup ROOT CGROUP ARGUMENT...
# A cgroup of its own, then the script again, with its arguments, in a cgroup namespace whose root it is. It groups
# processes and limits nothing. cgroup2 can be mounted beside the controllers of cgroup v1, too.
enter_cgroup() {
    mount --make-rprivate /
    mount -t cgroup2 cgroup2 "$1/mnt"
    # Another rehearsal that ends removes empty cgroups: once more, then.
    for _ in 1 2; do
        mkdir -p "$1/mnt/$2"
        echo $$ > "$1/mnt/$2/cgroup.procs" && break
    done
    umount "$1/mnt"
    shift 2
    HAS_CGROUP=1 exec unshare --cgroup sh "$0" "$@"
}

# usage: mount_kernel ROOT
mount_kernel() {
    mount -t proc proc "$1/proc"
    # The kernel's settings are this machine's; those of the network are the namespace's.
    mount --bind "$1/proc/sys/net" "$1/proc/sys/net"
    mount --rbind "$1/proc/sys" "$1/proc/sys"
    mount -o remount,bind,ro "$1/proc/sys"
    mount -t sysfs -o ro sysfs "$1/sys"
}

# usage: mount_devices ROOT
# The devices of a minimal machine; /dev of the host stays out of sight.
mount_devices() {
    mount -t tmpfs -o mode=755,size=1m dev "$1/dev"
    for device in null zero full random urandom tty; do
        : > "$1/dev/$device"
        mount --bind "/dev/$device" "$1/dev/$device"
    done
    mkdir "$1/dev/pts" "$1/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$1/dev/pts"
    mount -t tmpfs -o mode=1777 shm "$1/dev/shm"
    ln -s pts/ptmx "$1/dev/ptmx"
    ln -s /proc/self/fd "$1/dev/fd"
    ln -s fd/0 "$1/dev/stdin"
    ln -s fd/1 "$1/dev/stdout"
    ln -s fd/2 "$1/dev/stderr"
}

# usage: change_root ROOT
change_root() {
    cd "$1"
    pivot_root . .
    umount -l .
    hostname "$(cat /etc/hostname)"
}
