"""Jobs run on the Python that the image is for, and a Python that cannot serve them is refused before any download."""

import json

import pytest

from deeplearning_contract.setting_parts import EnvironmentSettings, find_wheel_conflict
from deeplearning_node.programs import Programs
from deeplearning_provision.python.interpreter import find_interpreter
from deeplearning_provision.steps import ProvisionFailure
from tests.unit.deeplearning_provision.environment_lab import LookingClock, NodeStand, link_programs, make_facts

SYSTEM, OWN, FRAMEWORK = "/usr/bin/python3", "/usr/bin/python3.12", "/opt/pytorch/bin/python"
NO_MATCH = {
    "apt-get": 'for word; do [ "$word" != update ] || exit 0; done; echo "E: Unable to locate package python3.13-dev"',
    "dnf": 'echo "No match for argument: python3.13-devel"',
}


class Root:
    """A node's root whose Pythons say a version, and note what else is asked of them or of a package manager."""

    def __init__(self, folder, pythons, *, frameworks=(), manager="apt-get"):
        self.root, self.calls = folder / "root", folder / "calls"
        for path, version in pythons.items():
            self._write(self.root / path.lstrip("/"), self._describe(version, frameworks))
        self.programs = folder / "programs"
        # Nothing of this machine's own: a test installs nothing on it.
        link_programs(self.programs, ["sh", "env"])
        self._write(self.programs / "sudo", 'shift; exec "$@"\n')
        self._write(self.programs / manager, f'echo "{manager} $@" >>{self.calls}\n{NO_MATCH[manager]}; exit 1\n')
        for name in ("g++", "make"):
            self._write(self.programs / name, "exit 0\n")

    def _describe(self, version, frameworks):
        facts = {
            "version": version,
            "platform": "linux-x86_64",
            "packages": [],
            "headers": f"/nowhere/include/python{version.rpartition('.')[0]}",
            "is_virtual": False,
            "has_system_packages": True,
            "pip": "24.0",
            "has_venv": True,
            "has_ensurepip": True,
            "horovod": [],
            "frameworks": dict.fromkeys(frameworks, "2.13.0"),
        }
        return f'[ "$1" = -I ] || {{ echo "python $@" >>{self.calls}; exit 1; }}\necho \'{json.dumps(facts)}\'\n'

    @staticmethod
    def _write(path, body):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}")
        path.chmod(0o755)

    def find(self, own=SYSTEM):
        return find_interpreter(self.root, Programs(), own)

    def refuse(self, **settings):
        """Provide an environment that cannot be made, and return the failure and what ran before it."""
        (self.root / "mnt/efs").mkdir(parents=True)
        facts = make_facts(0, EnvironmentSettings("horovod", horovod="0.28.1", **settings))
        with pytest.raises(ProvisionFailure) as caught:
            NodeStand(self.root, facts, Programs(str(self.programs)), LookingClock()).provide()
        assert caught.value.is_final
        return caught.value, self.calls.read_text().splitlines() if self.calls.exists() else []


def test_the_python_of_a_framework_comes_first_then_the_images_own_and_the_systems_last(tmp_path):
    # "/usr/bin/python3 will remain as Python 3.9 for the life of AL2023": AL2023 user guide, "Python in AL2023".
    node = Root(tmp_path, {FRAMEWORK: "3.13.7", OWN: "3.12.11", SYSTEM: "3.11.2"})
    assert node.find(OWN).path == FRAMEWORK
    (node.root / FRAMEWORK.lstrip("/")).unlink()
    assert (node.find(OWN).path, node.find(OWN).version) == (OWN, "3.12.11")
    assert node.find().path == SYSTEM
    (node.root / OWN.lstrip("/")).unlink()
    assert node.find(OWN).path == SYSTEM


def test_an_image_without_python_is_refused_with_the_paths_that_were_tried(tmp_path):
    with pytest.raises(ProvisionFailure, match=f"none of {FRAMEWORK}, {OWN}, {SYSTEM}"):
        Root(tmp_path, {}).find(OWN)


@pytest.mark.parametrize("version", ["3.9.25", "3.8.10", "2.7.18"])
def test_a_python_that_is_too_old_is_refused_before_anything_is_downloaded(tmp_path, version):
    failure, calls = Root(tmp_path, {SYSTEM: version}).refuse(framework="torch==2.13.0", interpreter=OWN)
    assert failure.cause == (
        f"the Python of jobs must be 3.10 or later, as PyTorch 2.9 and later need, got {version} of {SYSTEM}, and the "
        f"image has no {FRAMEWORK} and no {OWN}"
    )
    assert "3.10 or later and name it as the image's interpreter" in failure.remedy
    assert calls == []


def test_a_pin_without_a_wheel_for_the_python_is_refused_before_anything_is_downloaded(tmp_path):
    node = Root(tmp_path, {OWN: "3.12.11"})
    failure, calls = node.refuse(framework="tensorflow==2.15.1", interpreter=OWN)
    assert failure.cause == (
        f"environment.framework must have a wheel for Python 3.12.11 of {OWN}, got tensorflow==2.15.1, whose are for "
        "3.11 and earlier"
    )
    assert failure.remedy.startswith("pin tensorflow==2.16.2, or use an image with such a Python")
    assert calls == []


@pytest.mark.parametrize(
    ("framework", "python", "pin"),
    [
        # On PyPI tensorflow 2.16.1 has the first wheels for Python 3.12.
        ("torch==2.13.0", "3.12", None),
        ("tensorflow==2.15.1", "", None),
        ("", "3.12", None),
        ("tensorflow==2.15.1", "3.12", "tensorflow==2.16.2"),
        ("tensorflow==2.15.1", "3.11", None),
        ("tensorflow==2.16.2", "3.12", None),
    ],
)
def test_wheels_exist_for_some_versions_of_python(framework, python, pin):
    found = find_wheel_conflict(framework, python)
    assert (found and found[1]) == pin


@pytest.mark.parametrize(("manager", "package"), [("apt-get", "python3.13-dev"), ("dnf", "python3.13-devel")])
def test_a_python_whose_headers_the_distribution_lacks_is_refused_before_pip_runs(tmp_path, manager, package):
    # Ubuntu 24.04 has packages of Python 3.12 alone (packages.ubuntu.com); an image's framework may have another.
    node = Root(tmp_path, {FRAMEWORK: "3.13.7"}, frameworks=["torch"], manager=manager)
    failure, calls = node.refuse()
    assert failure.cause == f"the distribution has no package {package}, which the build needs"
    assert "JobEnvironment.none() and use torchrun" in failure.remedy
    assert "python3-dev" not in failure.remedy
    assert calls[-1].endswith(package)
    assert not any(call.startswith("python") for call in calls)


@pytest.mark.parametrize("manager", ["apt-get", "dnf"])
def test_headers_of_another_place_do_not_serve_and_are_refused_before_pip_runs(tmp_path, monkeypatch, manager):
    monkeypatch.setitem(NO_MATCH, manager, "exit 0")
    node = Root(tmp_path, {FRAMEWORK: "3.12.11"}, frameworks=["torch"], manager=manager)
    failure, calls = node.refuse()
    assert failure.cause == "Horovod cannot be built without Python.h of 3.12.11 in /nowhere/include/python3.12"
    assert "python3.12-dev on Ubuntu and Debian" in failure.remedy
    assert not any(call.startswith("python") for call in calls)
