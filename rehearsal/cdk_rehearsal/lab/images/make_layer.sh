#!/bin/sh
# Makes a layer of an image over others: what a command changes in a root file system, and nothing else.
# usage: make_layer.sh LAYER LOWER FOLDERS COMMAND
#   LAYER    an empty folder
#   LOWER    the layers below, the uppermost first, with colons between them
#   FOLDERS  a folder of folders that the command finds in /srv
# Runs in mount and process namespaces of its own, which take everything away. The upper layer is in memory, because an
# overlay cannot be written over another one, which a container's file system is.
set -eu
layer=$1 lower=$2 folders=$3 command=$4

# See check_run in lab/disk.py.
export LIBMOUNT_FORCE_MOUNT2=always
work=$layer.work
mkdir "$work"
mount -t tmpfs -o mode=755 tmpfs "$work"
mkdir "$work/upper" "$work/scratch" "$work/root"
mount -t overlay -o "lowerdir=$lower,upperdir=$work/upper,workdir=$work/scratch" overlay "$work/root"
mount -t proc proc "$work/root/proc"
mount --rbind /dev "$work/root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$work/root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$work/root/srv"
for folder in "$folders"/*; do
    mkdir "$work/root/srv/${folder##*/}"
    mount --bind "$(readlink -f "$folder")" "$work/root/srv/${folder##*/}"
done
chroot "$work/root" env --ignore-environment PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive sh -euc "$command"
cp -a "$work/upper/." "$layer/"
umount -l "$work/root" "$work"
rmdir "$work"
