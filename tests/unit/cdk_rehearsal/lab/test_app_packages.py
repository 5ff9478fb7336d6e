"""Packages that user data installs with apt: which they are, and what is downloaded."""

import base64

import pytest

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.lab.images import app_packages
from cdk_rehearsal.lab.images.app_packages import add_packages, find_app_packages
from cdk_rehearsal.lab.images.base_root import BaseRoot

APT = """#!/bin/sh
echo "$(basename "$0") $*" >> {log}
for word; do case $word in
    Dir::Cache=*) cache=${{word#*=}} ;;
    update) exit {update} ;;
    absent | broken) exit 100 ;;
    jq) touch "$cache/archives/jq_1%3a1_all.deb" ;;
esac; done
"""


def make_stack(*lines):
    text = {"Fn::Base64": {"Fn::Join": ["", ["#!/bin/bash\n", "\n".join(lines), {"Ref": "Queue"}]]}}
    return AssemblyStack("s", "123456789012", "us-east-1", {"Resources": {"Template": {"UserData": text}}}, ())


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("apt-get install -y unzip jq", {"unzip", "jq"}),
        ("apt-get -qq -y install --no-install-recommends nginx && systemctl start nginx", {"nginx"}),
        ("DEBIAN_FRONTEND=noninteractive apt install -y \\\n  git python3-pip; echo done", {"git"} | {"python3-pip"}),
        ("apt-get install -y $PACKAGES libssl-dev", {"libssl-dev"}),
        ("echo install -y unzip", set()),
        ("apt-get update", set()),
    ],
)
def test_the_packages_that_user_data_names_are_found(line, names):
    assert find_app_packages([make_stack(line.replace("\\\n", "\\ "))]) == names


def test_encoded_texts_name_no_package():
    assert find_app_packages([make_stack(base64.b64encode(b"apt-get install -y unzip").decode())]) == set()


@pytest.fixture
def base(tmp_path, monkeypatch):
    """A base root with one package, and programs of apt that write what they are given."""
    for name in ("base/root/var/lib/dpkg", "base/archive", "bin", "cache"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "base/archive/make_1_all.deb").touch()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(app_packages, "write_archive", lambda _folder: None)
    return BaseRoot(tmp_path / "base/root", tmp_path / "base/archive")


def plant_apt(folder, update=0):
    for name in ("apt-get", "apt-cache"):
        program = folder / "bin" / name
        program.write_text(APT.format(log=folder / "log", update=update))
        program.chmod(0o755)


def test_the_archive_has_the_named_packages_once_with_those_of_the_base_root(tmp_path, base):
    plant_apt(tmp_path)
    said = []
    for _ in range(2):
        archive = add_packages(base, ["jq", "absent", "make"], tmp_path / "cache", said.append).archive
    assert {path.name for path in archive.glob("*.deb")} == {"make_1_all.deb", "jq_1%3a1_all.deb"}
    missing = "Debian has no package absent; machines install it in vain"
    assert said == ["downloading for apt, once: absent jq", missing, missing]
    assert f"Dir::State::status={base.root}/var/lib/dpkg/status" in (tmp_path / "log").read_text()


def test_without_a_way_to_the_archive_nothing_is_kept(tmp_path, base):
    plant_apt(tmp_path, update=100)
    said = []
    assert add_packages(base, ["jq"], tmp_path / "cache", said.append) == base
    assert said[-1] == "this machine does not reach Debian's archive; machines install jq in vain"
    plant_apt(tmp_path)
    assert add_packages(base, ["jq"], tmp_path / "cache", said.append) != base


def test_what_every_base_root_has_needs_no_archive_of_its_own(tmp_path, base):
    assert add_packages(base, ["make", "curl"], tmp_path / "cache", pytest.fail) == base
