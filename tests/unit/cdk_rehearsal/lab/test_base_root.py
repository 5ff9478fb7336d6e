"""The recipe of the base root and what this machine must have for it."""

import pytest

from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab.images import base_root

NOT_IN_AN_IMAGE = {"awscli", "python3-boto3", "amazon-efs-utils", "nfs-common", "cmake", "python3-torch", "horovod"}


def test_the_image_holds_what_a_cloud_image_would_and_nothing_that_makes_it_easier():
    brought = set(base_root.IMAGE_PACKAGES)
    assert not NOT_IN_AN_IMAGE & brought
    assert not set(base_root.ARCHIVE_PACKAGES) & brought


def test_another_recipe_has_another_name_in_the_cache(monkeypatch):
    before = base_root.recipe_key()
    assert base_root.recipe_key() == before
    monkeypatch.setattr(base_root, "IMAGE_PACKAGES", (*base_root.IMAGE_PACKAGES, "nano"))
    assert base_root.recipe_key() != before


def test_a_cached_root_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(base_root, "install_missing_packages", lambda report: None)
    root = tmp_path / base_root.recipe_key()
    root.mkdir()
    said = []
    assert base_root.prepare_base_root(tmp_path, said.append) == base_root.BaseRoot(root / "root", root / "archive")
    assert said == []


def test_missing_packages_of_the_machine_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(base_root, "ARCHIVE_KEYRING", tmp_path / "absent.gpg")
    assert base_root.find_missing_packages() == ("mmdebstrap", "iproute2", "debian-archive-keyring")


def test_without_apt_get_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"missing: mmdebstrap, .*package manager"):
        base_root.install_missing_packages(lambda line: None)


def test_without_root_the_error_is_the_line_to_run(tmp_path, monkeypatch):
    (tmp_path / "apt-get").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(base_root.os, "geteuid", lambda: 1000)
    with pytest.raises(UnavailableError, match="run: sudo apt-get install --yes mmdebstrap iproute2"):
        base_root.install_missing_packages(lambda line: None)
