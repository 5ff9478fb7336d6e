"""Packages of the system for a build, with small programs in the place of apt-get, dnf, dpkg-query and sudo."""

import os

import pytest

from deeplearning_node.programs import Programs
from deeplearning_provision import system_packages
from deeplearning_provision.program_log import Transcript
from deeplearning_provision.steps import ProvisionFailure
from deeplearning_provision.system_packages import (
    COMPILER,
    ENSUREPIP,
    HEADERS,
    MAKE,
    install_system_packages,
    name_packages,
)
from tests.unit.deeplearning_provision.environment_lab import link_programs

SUDO = 'echo "sudo $1" >>"$FAKES/calls"; shift; exec "$@"'
RECORD = 'echo "$(basename "$0") $DEBIAN_FRONTEND/$NEEDRESTART_SUSPEND $@" >>"$FAKES/calls"'
NO_PACKAGE = (r"distribution has no package g\+\+, which the build", "JobEnvironment.none() and use torchrun")
NO_ROUTE = """
W: Failed to fetch http://archive.example/dists/noble/InRelease  Temporary failure resolving 'archive.example'
E: Unable to locate package g++
"""


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Return a function that makes a node's programs, and one that installs and returns what was told."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    fakes = tmp_path / "programs"
    link_programs(fakes, ["sh", "env", "basename", "cat"])

    def make(**programs):
        bodies = {"sudo": SUDO, **programs}
        for name in [name for name, body in bodies.items() if body is not None]:
            path = fakes / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\nFAKES='{fakes}'\n{bodies[name]}\n")
            path.chmod(0o755)
        return Programs(str(fakes))

    return make


@pytest.fixture
def install(tmp_path):
    def run(programs, *names):
        told = []
        install_system_packages(programs, Transcript(tmp_path / "log", programs), names, told.append)
        return told

    return run


def calls(tmp_path):
    path = tmp_path / "programs/calls"
    return path.read_text().splitlines() if path.exists() else []


def test_only_what_is_missing_is_installed_with_sudo_and_quietly(tmp_path, node, install):
    programs = node(apt_get=RECORD, dpkg_query="echo make installed; echo g++ config-files; exit 1")
    assert install(programs, "g++", "make", "python3-dev") == ["installing g++, python3-dev with apt-get"]
    options = "-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"
    assert calls(tmp_path) == [
        "sudo -n",
        f"apt-get noninteractive/1 {options} update",
        "sudo -n",
        f"apt-get noninteractive/1 {options} install --yes --no-install-recommends --no-upgrade g++ python3-dev",
    ]


def test_root_needs_no_sudo_and_nothing_runs_when_all_is_there(tmp_path, node, install, monkeypatch):
    programs = node(apt_get=RECORD, dpkg_query="for name; do echo $name installed; done")
    assert install(programs, "g++", "make") == []
    assert calls(tmp_path) == []
    (tmp_path / "programs/apt-get").unlink()
    monkeypatch.setattr(system_packages.os, "geteuid", lambda: 0)
    install(node(dnf=RECORD, rpm="echo make is not installed; exit 1", sudo="exit 1"), "make")
    assert calls(tmp_path) == ["dnf noninteractive/1 install --assumeyes make"]


@pytest.mark.parametrize(
    ("manager", "version", "expected"),
    [
        ("apt_get", "3.12.3", ["g++", "make", "python3.12-dev", "python3.12-venv"]),
        ("apt_get", "3.13.7", ["g++", "make", "python3.13-dev", "python3.13-venv"]),
        # AL2023 user guide, "Python in AL2023": each Python has its namespace, and the system's is 3.9.
        ("dnf", "3.12.11", ["gcc-c++", "make", "python3.12-devel", "python3.12-pip"]),
        ("dnf", "3.11.14", ["gcc-c++", "make", "python3.11-devel", "python3.11-pip"]),
        ("dnf", "3.9.25", ["gcc-c++", "make", "python3-devel", "python3-pip"]),
    ],
)
def test_packages_are_those_of_the_system_and_of_the_version_of_python(node, manager, version, expected):
    assert name_packages([COMPILER, MAKE, HEADERS, ENSUREPIP], node(**{manager: ""}), version) == expected


def test_a_broken_index_that_is_not_needed_does_no_harm(node, install):
    body = f'{RECORD}\nfor word; do [ "$word" != update ] || exit 100; done'
    assert install(node(apt_get=body, dpkg_query="exit 1"), "g++") == ["installing g++ with apt-get"]


@pytest.mark.parametrize(
    ("programs", "words", "is_final"),
    [
        ({"dpkg_query": ""}, ("neither apt-get nor dnf", "use an image that has them"), True),
        ({"apt_get": "", "sudo": "echo sudo: a password is required; exit 1"}, ("may not use sudo", "let the"), True),
        ({"apt_get": "", "sudo": None}, ("may not use sudo", "let the"), True),
        ({"apt_get": f"cat <<END\n{NO_ROUTE}END\nexit 100"}, ("could not fetch", "check the route"), False),
        ({"apt_get": "echo E: Could not get lock /x; exit 100"}, ("could not fetch", "retrying"), False),
        # What apt-get of Ubuntu 24.04 and dnf of Amazon Linux 2023 say of a package that the distribution lacks.
        ({"apt_get": '[ "${5-}" = update ] || { echo E: Unable to locate package g++; exit 100; }'}, NO_PACKAGE, True),
        ({"apt_get": "echo \"E: Package 'g++' has no installation candidate\"; exit 100"}, NO_PACKAGE, True),
        ({"dnf": "echo No match for argument: g++; echo Error: Unable to find; exit 1", "rpm": ""}, NO_PACKAGE, True),
        ({"dnf": "echo Error: disk full; exit 1", "rpm": ""}, ("could not install", "set-up"), True),
    ],
)
def test_a_failed_installation_is_reported_with_a_remedy_and_as_final_or_temporary(
    node, install, programs, words, is_final
):
    message, remedy = words
    with pytest.raises(ProvisionFailure, match=message) as caught:
        install(node(**{"dpkg_query": "exit 1", **programs}), "g++")
    assert remedy in caught.value.remedy
    assert caught.value.is_final is is_final
    if programs.get("apt_get", "").startswith("echo E:"):
        assert caught.value.output.startswith("E:")
