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
in_build MAKEFLAGS="-j$(nproc)" HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITH_MPI=1 \
    HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
    pip install --quiet --no-index --no-deps --no-build-isolation --no-compile --break-system-packages \
    --root=/tmp/horovod "/tmp/$(basename "$source")"
in_build find /tmp/horovod -name '*.so' -exec strip --strip-unneeded {} +
cp -a "$work/build/tmp/horovod/." "$root/"
umount -R "$work/build"
umount "$work"
rmdir "$work"

printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' > "$root/etc/hosts"

# Debian's PyTorch is older than its Python, in which torchrun ends with an AttributeError whatever it is given: an
# enumeration lists its composed members no more. PyTorch 2.0 has this line.
api=$root/usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py
sed -i '/^            for s in Std:$/,/^                    return s$/c\            return Std(v)' "$api"

# In namespaces of their own, because Gloo looks up the host's own name, and MPI wants /proc and /dev.
say "trying Horovod with Gloo and with MPI"
cat > "$root/tmp/try.py" <<'PROGRAM'
import sys

import horovod.torch as hvd
import torch

hvd.init()
ranks = int(sys.argv[1])
assert hvd.size() == ranks, hvd.size()
assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [float(ranks)] * 3
PROGRAM
in_root() {
    # shellcheck disable=SC2016 # the inner shell's own arguments
    unshare --mount --uts sh -c 'hostname localhost && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
        exec chroot "$0" env --ignore-environment PATH=/usr/bin:/bin HOME=/root "$@"' "$root" "$@"
}
in_root HOROVOD_CONTROLLER=gloo HOROVOD_CPU_OPERATIONS=gloo python3 /tmp/try.py 1
in_root mpirun --allow-run-as-root --oversubscribe -np 2 --mca btl self,tcp --mca btl_tcp_if_include lo \
    --mca oob_tcp_if_include lo -x HOROVOD_CONTROLLER=mpi -x HOROVOD_CPU_OPERATIONS=mpi python3 /tmp/try.py 2
say "trying torchrun"
in_root torchrun --nproc_per_node 2 --no_python true
rm "$root/tmp/try.py"

# Its unit looks for ext4 snapshots, which no node has.
rm -f "$root/etc/systemd/system/multi-user.target.wants/e2scrub_reap.service"

# An image carries no identity: keys and ids are made at boot.
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/machine-id" "$root/etc/hostname" "$root/etc/resolv.conf"
: > "$root/etc/machine-id"
