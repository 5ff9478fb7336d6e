"""The same sources always give the same bytes, and only what runs is packed."""

import io
import os
import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest

from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts
from deeplearning_cdk.coordination import payload
from deeplearning_cdk.nodes.member_settings import describe_member
from deeplearning_contract.setting_parts import FileSystemSettings
from deeplearning_contract.settings import NodeSettings


def _names(archive):
    return zipfile.ZipFile(archive.path).namelist()


def _make_tree(root):
    package = root / "package"
    (package / "__pycache__").mkdir(parents=True)
    (package / "b.py").write_text("B = 1\n")
    (package / "a.py").write_text("A = 1\n")
    (package / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"compiled")
    (root / "alone.py").write_text("ALONE = 1\n")
    return [package, root / "alone.py"]


def test_bytes_do_not_depend_on_dates_modes_folders_or_compiled_files(tmp_path):
    first = payload.zip_bytes(_make_tree(tmp_path / "first"))
    again = _make_tree(tmp_path / "second")
    os.utime(again[1], (1, 1))
    again[1].chmod(0o700)
    (again[0] / "__pycache__" / "more.pyc").write_bytes(b"more")
    assert payload.zip_bytes(list(reversed(again))) == first


def test_bytes_change_with_the_sources(tmp_path):
    sources = _make_tree(tmp_path)
    before = payload.zip_bytes(sources)
    sources[1].write_text("ALONE = 2\n")
    assert payload.zip_bytes(sources) != before


def test_zip_is_stored_sorted_and_of_one_date(tmp_path):
    entries = zipfile.ZipFile(io.BytesIO(payload.zip_bytes(_make_tree(tmp_path)))).infolist()
    assert [entry.filename for entry in entries] == ["alone.py", "package/a.py", "package/b.py"]
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.external_attr >> 16 for entry in entries} == {0o100644}


def test_agents_zip_is_an_import_path_with_agent_contract_and_boto3():
    tops = {name.split("/")[0] for name in _names(payload.pack_agent()) if ".dist-info/" not in name}
    assert {"boto3", "botocore", "deeplearning_agent", "deeplearning_contract"} <= tops
    assert "capacity_adjuster" not in tops
    assert "vendor" not in tops


def test_members_zip_has_the_agent_and_its_settings_beside_it():
    file_system = FileSystemSettings("channel", "/opt/ml/input/data/shared", "", "/efs")
    settings = describe_member(
        InstanceTypeFacts(name="g5.xlarge", gpu_count=1),
        login_user="root",
        file_system=file_system,
        setup_seconds=60,
        data=[],
        environment=None,
    )
    path = payload.pack_member(settings)
    packed = zipfile.ZipFile(path)
    assert NodeSettings.from_json(packed.read("settings.json").decode()) == settings
    assert set(packed.namelist()) == {*_names(payload.pack_agent()), "settings.json"}
    assert payload.pack_member(replace(settings, setup_seconds=61)) != path


def test_adjusters_zip_has_the_adjuster_and_the_contract_alone():
    names = _names(payload.pack_adjuster())
    assert {name.split("/")[0] for name in names} == {"capacity_adjuster", "deeplearning_contract"}
    assert "capacity_adjuster/handler.py" in names


@pytest.mark.parametrize("pack", [payload.pack_agent, payload.pack_adjuster])
def test_nothing_compiled_is_packed(pack):
    assert not [name for name in _names(pack()) if "__pycache__" in name or name.endswith(".pyc")]


def test_unpacked_agent_imports_from_its_own_folder_alone(tmp_path):
    zipfile.ZipFile(payload.pack_agent().path).extractall(tmp_path)
    program = "import boto3, deeplearning_agent, deeplearning_contract as c; print(boto3.__file__); print(c.__file__)"
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(tmp_path)!r}); {program}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.split()
    assert all(line.startswith(str(tmp_path)) for line in found)


def test_missing_vendor_names_make_setup(tmp_path, monkeypatch):
    monkeypatch.setattr(payload, "_CHECKOUT", tmp_path)
    with pytest.raises(ValueError, match=r"got no .*build/vendor; run `make setup`"):
        payload.find_payload("vendor")


def test_wheel_reads_its_own_data(tmp_path, monkeypatch):
    (tmp_path / "bootstrap.sh").write_text("")
    monkeypatch.setattr(payload, "_INSTALLED", tmp_path)
    assert payload.find_payload("bootstrap.sh") == tmp_path / "bootstrap.sh"
