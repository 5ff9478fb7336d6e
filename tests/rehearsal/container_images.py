"""Runs commands in images of containers, without the lab."""

import subprocess

from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.lab.images.base_root import ENCLOSED, prepare_base_root
from cdk_rehearsal.run.progress import report_line

_ENTER = """
cd "$(mktemp -d)"
mkdir root
mount -t overlay -o "lowerdir=$1" overlay root
shift
exec chroot root "$@"
"""


def run_inside(image, *command):
    """Run a command in the root of an image over the nodes' root, with the image's variables alone."""
    base = prepare_base_root(find_cache(), report_line)
    layers = ":".join(str(layer) for layer in (*image.layers, base.root))
    variables = [f"{name}={value}" for name, value in image.environment.items()]
    words = [*ENCLOSED, "sh", "-euc", _ENTER, "sh", layers, "env", "--ignore-environment", *variables, *command]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
