"""Apps that have nothing to do with deep learning, with the feature flags of `cdk init`, are rehearsed as they are."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import aws_cdk
import constructs
import pytest

from cdk_rehearsal.embedded_aws.functions.interpreters import find_node

APP = Path(__file__).parent / "plain_app"
COMMAND = Path(sys.executable).with_name("cdk-rehearse")


def list_archives():
    """Return the archives of JavaScript that the CDK for Python brings."""
    folders = (Path(package.__file__).parent for package in (aws_cdk, constructs))
    return [archive for folder in folders for archive in sorted(folder.rglob("_jsii/*.tgz"))]


def unpack(archive, folder, member=""):
    """Unpack an archive of JavaScript, all of it or one file, and return its folder."""
    with tarfile.open(archive) as opened:
        members = [each for each in opened.getmembers() if each.name.startswith(f"package/{member}")]
        opened.extractall(folder, members, filter="data")
    return folder / "package"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The environment of synthesis, with the flags that `cdk init` writes for a new app."""
    (library,) = (each for each in list_archives() if each.name.startswith("aws-cdk-lib@"))
    folder = unpack(library, tmp_path_factory.mktemp("flags"), "recommended-feature-flags.json")
    return os.environ | {"CDK_CONTEXT_JSON": (folder / "recommended-feature-flags.json").read_text()}


@pytest.fixture(scope="module")
def synthesized(environment, tmp_path_factory):
    """The app of Python, synthesized."""
    folder = tmp_path_factory.mktemp("python") / "cdk.out"
    command = [sys.executable, APP / "app.py"]
    subprocess.run(command, env=environment | {"CDK_OUTDIR": str(folder)}, check=True, capture_output=True)
    return folder


@pytest.fixture
def assembly(synthesized, tmp_path):
    """A copy that may be changed."""
    return shutil.copytree(synthesized, tmp_path / "cdk.out")


def rehearse(assembly, *options, status=0):
    """Run the command and return what it wrote."""
    out = ["--out", str(assembly.with_name("out"))]
    answer = subprocess.run([COMMAND, assembly, *out, *options], capture_output=True, text=True, check=False)
    assert answer.returncode == status, answer.stdout + answer.stderr
    return answer


def read_problems(assembly):
    return json.loads((assembly.with_name("out") / "report.json").read_text())["problems"]


def test_an_app_of_python_is_rehearsed_until_its_targets_are_healthy(assembly):
    said = rehearse(assembly, "--check", str(APP / "checks.py")).stderr
    assert said.count("target healthy") == 2
    assert "may fail, depending on the order of creation: Resources.Fleet" in said


def test_an_app_of_typescript_is_rehearsed_too(environment, tmp_path):
    shutil.copy(APP / "app.ts", tmp_path)
    for archive in list_archives():
        package = unpack(archive, tmp_path / "unpacked")
        home = tmp_path / "node_modules" / json.loads((package / "package.json").read_text())["name"]
        home.parent.mkdir(parents=True, exist_ok=True)
        package.rename(home)
    assembly = tmp_path / "cdk.out"
    command = [find_node(), tmp_path / "app.ts"]
    subprocess.run(command, env=environment | {"CDK_OUTDIR": str(assembly)}, check=True, capture_output=True)
    assert "machine" in rehearse(assembly).stdout


def test_its_stack_is_created_and_deleted_in_every_order(assembly):
    said = rehearse(assembly, "--orders", "5").stderr
    assert said.count("created and deleted") == 5


def change(assembly, before, after):
    template = assembly / "web.template.json"
    text = template.read_text()
    assert before in text
    template.write_text(text.replace(before, after))


def test_a_fault_in_user_data_fails_with_the_reason(assembly):
    change(assembly, "systemd-run --unit web", "systemd-run --unit web --no-such-option")
    rehearse(assembly, status=1)
    (problem,) = read_problems(assembly)
    assert "FAILURE signal(s) out of 2. Unable to satisfy 100% MinSuccessfulInstancesPercent" in problem


def test_a_missing_right_fails_with_the_reason(assembly):
    change(assembly, '"ec2:RevokeSecurityGroupEgress"', '"ec2:DescribeVpcs"')
    rehearse(assembly, status=1)
    assert any("not authorized to perform: ec2:RevokeSecurityGroupEgress" in each for each in read_problems(assembly))


def test_missing_capacity_fails_with_the_reason(assembly):
    rehearse(assembly, "--fault", "capacity", status=1)
    (problem,) = read_problems(assembly)
    assert "We currently do not have sufficient t3.micro capacity" in problem
