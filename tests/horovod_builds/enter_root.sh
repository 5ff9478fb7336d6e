#!/bin/sh
# Runs a command in an overlay over a root, in namespaces of its own.
# usage: enter_root.sh ROOT WORK BIND... -- COMMAND...
# A BIND is SOURCE=TARGET, read-only but for /root/.cache/pip.
set -eu
root=$1 work=$2 here=$2/root
shift 2
mkdir -p "$work/upper" "$work/scratch" "$here"
mount -t overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/scratch" overlay "$here"
mount -t proc proc "$here/proc"
mount --rbind /dev "$here/dev"
while [ "$1" != -- ]; do
    source=${1%%=*} target=$here${1#*=}
    if [ -d "$source" ]; then
        mkdir -p "$target"
    else
        mkdir -p "$(dirname "$target")"
        rm -f "$target"
        : > "$target"
    fi
    mount --rbind "$source" "$target"
    case $target in */root/.cache/pip) ;; *) mount -o remount,bind,ro "$target" ;; esac
    shift
done
shift
mkdir -p "$here/build"
hostname localhost # Gloo looks up the host's own name.
printf '127.0.0.1 localhost\n' > "$here/etc/hosts"
exec chroot "$here" "$@"
