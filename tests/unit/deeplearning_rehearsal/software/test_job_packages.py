"""The environment of a cluster, as it is found in a cloud assembly."""

import hashlib
import json

import pytest

from cdk_rehearsal.assembly import read_stack
from cdk_rehearsal.errors import UnavailableError
from deeplearning_rehearsal.software import downloads
from deeplearning_rehearsal.software.node_software import prepare_job_packages

REQUIREMENTS = b"numpy==1.23.5\n"
DIGEST = hashlib.sha256(REQUIREMENTS).hexdigest()
Taken = list[tuple[bytes | str, ...]]


def _assembly(folder, environment):
    settings = {"needs": {} if environment is None else {"environment": environment}, "role": "master"}
    before, _, after = json.dumps(settings, separators=(",", ":")).partition("BUCKET")
    user_data = {"Fn::Base64": {"Fn::Join": ["", ["#!/bin/sh\n", before, {"Ref": "Bucket"}, after]]}}
    template = {
        "Resources": {
            "Group": {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": {}},
            "Template": {
                "Type": "AWS::EC2::LaunchTemplate",
                "Properties": {"LaunchTemplateData": {"UserData": user_data}},
            },
        }
    }
    files = {
        name: {
            "source": {"path": f"asset.{name}.txt", "packaging": "file"},
            "destinations": {"here": {"bucketName": "b", "objectKey": name}},
        }
        for name in ("one", "two")
    }
    stack = {"type": "aws:cloudformation:stack", "dependencies": ["assets"]}
    stack["properties"] = {"templateFile": "s.template.json"}  # type: ignore[assignment]
    assets = {"type": "cdk:asset-manifest", "properties": {"file": "s.assets.json"}}
    (folder / "manifest.json").write_text(json.dumps({"artifacts": {"s": stack, "assets": assets}}))
    (folder / "s.assets.json").write_text(json.dumps({"files": files}))
    (folder / "s.template.json").write_text(json.dumps(template))
    (folder / "asset.one.txt").write_bytes(b"another file")
    (folder / "asset.two.txt").write_bytes(REQUIREMENTS)
    return folder


def _environment(kind="requirements", sha256=DIGEST, horovod="0.28.1"):
    return {
        "kind": kind,
        "file": {"bucket": "BUCKET", "key": "k", "sha256": sha256},
        "image": "",
        "horovod": horovod,
    }


@pytest.fixture
def taken(monkeypatch):
    found = []

    def prepare(cache, requirements, _report):
        found.append((requirements.read_bytes(),))
        return cache / "packages"

    def prepare_horovod(cache, framework, horovod, _report):
        found.append((framework, horovod))
        return cache / "horovod"

    monkeypatch.setattr(downloads, "prepare_packages", prepare)
    monkeypatch.setattr(downloads, "prepare_horovod", prepare_horovod)
    return found


def _prepare(folder):
    return prepare_job_packages(read_stack(folder, None), folder / "cache", lambda _: None)


def test_the_requirements_are_the_asset_whose_digest_the_nodes_are_given(tmp_path, taken):
    packages = _prepare(_assembly(tmp_path, _environment()))
    assert packages == (tmp_path / "cache" / "packages", tmp_path / "cache" / "horovod")
    assert taken == [(REQUIREMENTS,), ("", "0.28.1")]


def test_requirements_without_horovod_download_nothing_for_it(tmp_path, taken):
    assert _prepare(_assembly(tmp_path, _environment(horovod=""))) == (tmp_path / "cache" / "packages",)
    assert taken == [(REQUIREMENTS,)]


@pytest.mark.parametrize(
    ("pinned", "wanted"),
    [("torch==2.7.1", "torch==2.13.0"), ("tensorflow-cpu==2.15.1", "tensorflow-cpu==2.15.1"), ("", "torch==2.13.0")],
)
def test_horovods_own_environment_finds_pytorch_for_the_cpu_in_the_index(tmp_path, taken, pinned, wanted):
    environment = {"kind": "horovod", "horovod": "0.28.1", "framework": pinned, "image": "", "file": None}
    assert _prepare(_assembly(tmp_path, environment)) == (tmp_path / "cache" / "horovod",)
    assert taken == [(wanted, "0.28.1")]


def test_a_stack_without_an_environment_downloads_nothing(tmp_path, taken):
    assert _prepare(_assembly(tmp_path, None)) == ()
    assert taken == []


def test_an_environment_that_the_nodes_could_not_make_is_refused(tmp_path, taken):
    with pytest.raises(UnavailableError, match="must be Horovod's or a requirements file in the rehearsal, got conda"):
        _prepare(_assembly(tmp_path, _environment(kind="conda")))
    with pytest.raises(UnavailableError, match="must be an asset of the assembly, got SHA-256 00"):
        _prepare(_assembly(tmp_path, _environment(sha256="00")))
    assert taken == []
