"""What nodes boot from and install from."""

import ipaddress
import os
import urllib.request
from pathlib import Path

import pytest

from deeplearning_rehearsal import node_software
from deeplearning_rehearsal.lab.base_root import BaseRoot
from deeplearning_rehearsal.node_software import NodeSoftware

STOCK = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
DEEP_LEARNING = "/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.12-ubuntu-24.04/latest/ami-id"
HOROVOD = '{"environment": {"kind": "horovod", "horovod": "0.28.1", "image": ""}}'


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


@pytest.mark.parametrize(
    ("image", "environment", "brings"),
    [
        (STOCK, "", True),
        (STOCK, HOROVOD, False),
        (DEEP_LEARNING, "", False),
        (DEEP_LEARNING, HOROVOD, False),
    ],
)
def test_an_image_brings_the_software_where_nothing_is_asked_for_and_the_image_is_no_known_one(
    image: str, environment: str, *, brings: bool
) -> None:
    data = {"ImageId": image, "UserData": {"Fn::Base64": f"#!/bin/sh\n{environment}"}}
    template = {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": data}}
    assert node_software.brings_software({"Resources": {"Template": template}}) is brings


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - of this test's own server
        return bytes(answer.read())
