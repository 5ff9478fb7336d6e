"""Whole rehearsals with something broken: the verdict turns, and the reason is told."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
Rehearsed = tuple[int, dict[str, Any]]


@pytest.fixture(scope="module")
def synthesized(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one-worker") / "cdk.out"
    command = [sys.executable, str(ROOT / "app.py"), "-c", "workers.desired_capacity=1"]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"CDK_OUTDIR": str(folder)})
    return folder


@pytest.fixture
def assembly(synthesized, tmp_path):
    """Return a copy of the assembly, in which something can be broken."""
    return shutil.copytree(synthesized, tmp_path / "cdk.out")


@pytest.fixture
def rehearse(tmp_path, capfd):
    def run(assembly, *options):
        out = tmp_path / "out"
        out.mkdir()
        command = [str(Path(sys.executable).with_name("deeplearning-cdk")), "rehearse", str(assembly)]
        answer = subprocess.run([*command, "--out", str(out), *options], check=False, capture_output=True, text=True)
        report = out / "report.json"
        assert report.is_file(), answer.stderr
        document = json.loads(report.read_text())
        with capfd.disabled():
            seconds = {phase["name"]: round(phase["seconds"], 1) for phase in document["phases"]}
            print(f"\n{document['verdict']}, {document['cluster']['formed']} nodes, {seconds}")
        return answer.returncode, document

    return run


def test_a_broken_agent_fails_the_stack_with_the_reason(assembly, rehearse):
    _replace_in_agent(assembly, "deeplearning_agent/boot/mounts.py", b"raise RuntimeError('planted in the agent')\n")
    status, report = rehearse(assembly, "--minutes", "3")
    assert (status, report["verdict"]) == (1, "fail")
    assert report["stack"]["status"] == "ROLLBACK_COMPLETE"
    assert "planted in the agent" in report["stack"]["reason"]


def test_a_broken_adjuster_never_passes(assembly, rehearse):
    _replace_in_zip(
        _find_zip(assembly, "capacity_adjuster/policy/decision.py"), "capacity_adjuster/policy/decision.py", b"1 / 0\n"
    )
    for minutes in ("0.4", "1", "4"):  # a busy machine calls the adjuster later
        status, report = rehearse(assembly, "--minutes", minutes)
        assert (status, report["verdict"]) == (1, "fail")
        assert report["stack"]["status"] == "CREATE_IN_PROGRESS"
        if any("ZeroDivisionError" in event["text"] for event in report["timeline"]):
            return
    raise AssertionError(f"no line of the timeline has the adjuster's error after {minutes} minutes")


def test_broken_user_data_fails_the_stack_with_the_reason(assembly, rehearse):
    _edit_template(assembly, lambda text: text.replace("systemctl daemon-reload", "planted-in-user-data"))
    status, report = rehearse(assembly, "--minutes", "3")
    assert (status, report["verdict"]) == (1, "fail")
    assert report["stack"]["status"] == "ROLLBACK_COMPLETE"
    assert "planted-in-user-data" in report["stack"]["reason"]


def _find_zip(assembly, member):
    (found,) = (path for path in assembly.glob("*.zip") if member in zipfile.ZipFile(path).namelist())
    return found


def _replace_in_zip(archive, member, content):
    with zipfile.ZipFile(archive) as source:
        files = {name: source.read(name) for name in source.namelist()}
    assert member in files
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for name, data in (files | {member: content}).items():
            target.writestr(name, data)
    archive.write_bytes(packed.getvalue())


def _replace_in_agent(assembly, member, content):
    archive = _find_zip(assembly, member)
    before = hashlib.sha256(archive.read_bytes()).hexdigest()
    _replace_in_zip(archive, member, content)
    after = hashlib.sha256(archive.read_bytes()).hexdigest()
    _edit_template(assembly, lambda text: text.replace(before, after))


def _edit_template(assembly, edit):
    (path,) = assembly.glob("*.template.json")
    text = path.read_text()
    assert edit(text) != text
    path.write_text(edit(text))
