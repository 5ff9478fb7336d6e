"""What nodes boot from and install from."""

import ipaddress
import os
import urllib.request
from pathlib import Path

from cdk_rehearsal.lab.images.base_root import BaseRoot
from deeplearning_rehearsal.software.node_software import NodeSoftware


def test_the_archive_is_served_always_and_the_index_where_there_are_packages(tmp_path: Path) -> None:
    # The ports are fixed: a loopback address of this process's own has them free.
    address = str(ipaddress.ip_address("127.1.0.0") + os.getpid())
    for name in ("archive", "packages"):
        (tmp_path / name).mkdir()
    (tmp_path / "archive" / "Packages").write_text("none")
    base = BaseRoot(tmp_path / "root", tmp_path / "archive")
    bare = NodeSoftware(base, {}, ())
    assert bare.index_url(address) == ""
    with bare.serve(address):
        assert _get(bare.archive_url(address) + "Packages") == b"none"
    whole = NodeSoftware(base, {}, (tmp_path / "packages",))
    with whole.serve(address):
        assert _get(whole.archive_url(address) + "Packages") == b"none"
        assert b"<html>" in _get(whole.index_url(address))


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - of this test's own server
        return bytes(answer.read())
