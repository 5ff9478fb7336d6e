#!/bin/sh
# Builds Horovod for a new root file system; mmdebstrap runs this as a hook.
# usage: build_horovod.sh ROOT SOURCE PACKAGE...
# The packages that only the build needs go into an overlay, so that ROOT gets nothing but Horovod.
set -eu
root=$1 source=$2
shift 2

say() { echo "I: $*" >&2; }

# Beside ROOT, so that what an interrupted build leaves goes with it.
work=$(dirname "$root")/horovod
mkdir "$work"
mount -t tmpfs -o mode=755 tmpfs "$work"
mkdir "$work/upper" "$work/scratch" "$work/build"
mount -t overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/scratch" overlay "$work/build"
mount -t proc proc "$work/build/proc"
mount --bind /dev "$work/build/dev"

# apt downloads outside, with the machine's own network set-up, and installs inside.
say "downloading what builds Horovod"
sed "s#$root#$work/build#g" "$MMDEBSTRAP_APT_CONFIG" > "$work/apt.conf"
APT_CONFIG=$work/apt.conf apt-get --yes --quiet install --download-only --no-install-recommends "$@"
in_build() {
    chroot "$work/build" env --ignore-environment PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"
}
in_build DEBIAN_FRONTEND=noninteractive apt-get --yes --quiet install --no-download --no-install-recommends "$@"

say "building Horovod (about 100 s on two cores)"
cp "$source" "$work/build/tmp/"
in_build MAKEFLAGS="-j$(nproc)" HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 \
    HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
    pip install --quiet --no-index --no-deps --no-build-isolation --no-compile --break-system-packages \
    --root=/tmp/horovod "/tmp/$(basename "$source")"
in_build find /tmp/horovod -name '*.so' -exec strip --strip-unneeded {} +
cp -a "$work/build/tmp/horovod/." "$root/"
umount -R "$work/build"
umount "$work"
rmdir "$work"

printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' > "$root/etc/hosts"

# Gloo looks up the host's own name.
say "trying Horovod"
unshare --uts sh -c 'hostname localhost && exec "$@"' sh \
    chroot "$root" env --ignore-environment PATH=/usr/bin HOME=/root python3 -c '
import horovod.torch as hvd, torch
hvd.init()
assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [1.0, 1.0, 1.0]
'

# Its unit looks for ext4 snapshots, which no node has.
rm -f "$root/etc/systemd/system/multi-user.target.wants/e2scrub_reap.service"

# An image carries no identity: keys and ids are made at boot.
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/machine-id" "$root/etc/hostname" "$root/etc/resolv.conf"
: > "$root/etc/machine-id"
