"""
The control plane of the statements: the stand-in, or the servers of `KUBERNETES_BINARIES`.

Real servers keep running through all statements, as the start of one takes ten seconds.
"""

import itertools
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from cdk_rehearsal.kubernetes.binaries import VARIABLE, find_binaries
from cdk_rehearsal.kubernetes.control_plane import ControlPlane
from tests.kubernetes.lab import GRACE_SECONDS, USERS, Lab

VERSION = "1.35"
NUMBERS = itertools.count(1)


def choose_version():
    """Return the minor version of the user's servers; that of the stand-in without them."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return VERSION
    command = [str(Path(folder) / "kube-apiserver"), "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.search(r"v([0-9]+\.[0-9]+)\.", answer)[1]


def open_plane(folder, binaries=None, version=VERSION):
    """
    Return a control plane that knows the users of the statements.

    Time of the stand-in passes by `Lab.until` alone: on a busy machine, nodes would else count as lost before a
    statement lets them renew their leases.
    """
    moment = time.time()
    return ControlPlane(
        folder,
        version=version,
        review=USERS.get,
        binaries=binaries,
        grace_seconds=GRACE_SECONDS,
        tell_time=lambda: moment,
    )


@pytest.fixture(scope="session")
def plane(tmp_path_factory):
    """The control plane of all statements."""
    folder, version = tmp_path_factory.mktemp("plane"), choose_version()
    opened = open_plane(folder, find_binaries(version, folder), version)
    print(opened.description)
    yield opened
    opened.stop()


@pytest.fixture
def lab(plane):
    """A prepared namespace with three nodes."""
    made = Lab(plane, next(NUMBERS))
    made.open()
    yield made
    made.close()
