"""The NVIDIA driver of a node against the CUDA of its environment, wherever the environment comes from."""

import hashlib

import pytest

from deeplearning_contract.names import EMR_INFO_DIRECTORY
from deeplearning_contract.setting_parts import EnvironmentSettings, ScriptSettings
from deeplearning_node.programs import Programs
from deeplearning_provision.horovod import plan as horovod_plan
from deeplearning_provision.steps import ProvisionFailure
from tests.unit.deeplearning_provision.environment_lab import (
    LookingClock,
    NodeStand,
    Stand,
    StopWaiting,
    describe,
    link_programs,
    make_facts,
    make_image,
    make_index,
    make_managers,
)

HOROVOD = EnvironmentSettings("horovod", horovod="0.28.1")
VERSIONS = r"CUDA 13\.0 of the software of jobs needs NVIDIA driver 580 or newer, the host has 535\.183\.01"
CONDA_TEXT = "dependencies: [python]\n"
CONDA_FILE = ScriptSettings("bucket", "environment.yml", hashlib.sha256(CONDA_TEXT.encode()).hexdigest())
CONDA = """#!/bin/sh
while [ "$1" != --prefix ]; do shift; done
mkdir -p "$2/bin"
printf '#!/bin/sh\\necho "{\\\\"cuda\\\\": [13, 0], \\\\"library\\\\": 12}"\\n' >"$2/bin/python"
chmod 755 "$2/bin/python"
"""


def make_cuda_image(folder, **options):
    """Make an image whose Python has PyTorch without CUDA, and a package of CUDA 13."""
    make_image(folder, **options)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "torch/version.py").write_text("cuda = None\n")
    info = packages / "nvidia_cuda_runtime-13.0.96.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(describe("nvidia-cuda-runtime", "13.0.96"))


def write_driver(folder, version="535.183.01"):
    """Let a folder of programs have an nvidia-smi, and return the folder."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    make_index(folder / "index")
    make_cuda_image(folder / "image")
    make_cuda_image(folder / "whole", with_horovod=True)
    return folder


@pytest.fixture
def stand(parts, tmp_path, monkeypatch):
    source = parts / "index/horovod-0.28.1.tar.gz"
    monkeypatch.setitem(horovod_plan.SOURCES, "0.28.1", hashlib.sha256(source.read_bytes()).hexdigest())
    with Stand(tmp_path / "cluster", parts / "index", parts / "image").pip_settings() as stand:
        yield stand


def age_driver(stand):
    """Let all nodes have a driver that is too old."""
    make_managers(stand.folder / "managers")
    write_driver(stand.folder / "managers")


def test_a_driver_that_is_too_old_fails_a_build_before_horovod_is_compiled_and_workers_report_it(stand):
    age_driver(stand)
    with pytest.raises(ProvisionFailure, match=VERSIONS) as caught:
        stand.node(0, settings=HOROVOD).provide()
    assert caught.value.is_final
    assert stand.builds() == []
    worker = stand.node(1, settings=HOROVOD)
    with pytest.raises(StopWaiting):
        worker.provide()
    assert "waiting: the master failed: CUDA 13.0" in worker.step.detail


def test_a_worker_whose_driver_is_too_old_refuses_the_environment_that_the_master_built(stand):
    assert stand.node(0).provide().state == "done"
    age_driver(stand)
    with pytest.raises(ProvisionFailure, match=VERSIONS):
        stand.node(1).provide()


def test_a_driver_that_is_too_old_for_the_images_own_software_fails(stand, parts):
    age_driver(stand)
    with pytest.raises(ProvisionFailure, match=VERSIONS):
        stand.node(0, settings=HOROVOD, image=parts / "whole").provide()


def test_a_driver_that_is_new_enough_passes(stand, parts):
    make_managers(stand.folder / "managers")
    write_driver(stand.folder / "managers", "580.95.05")
    assert stand.node(0, settings=HOROVOD, image=parts / "whole").provide().state == "done"


def test_a_driver_that_is_too_old_for_a_conda_environment_fails_and_no_job_finds_it(tmp_path):
    root, shared = tmp_path / "node", tmp_path / "shared"
    local = root / "opt/deeplearning/environments"
    for folder in (local, root / "mnt", shared):
        folder.mkdir(parents=True)
    (root / "mnt/efs").symlink_to(shared)
    (local / f"{CONDA_FILE.sha256[:16]}-environment.yml").write_text(CONDA_TEXT)
    programs = write_driver(tmp_path)
    link_programs(tmp_path / "system", ["sh", "mkdir", "chmod"])
    (programs / "conda").write_text(CONDA)
    (programs / "conda").chmod(0o755)
    found = Programs(f"{programs}:{tmp_path / 'system'}")
    facts = make_facts(0, EnvironmentSettings("conda", CONDA_FILE))
    node = NodeStand(root, facts, found, LookingClock())
    with pytest.raises(ProvisionFailure, match=VERSIONS):
        node.provide()
    assert not node.current.is_symlink()


@pytest.mark.parametrize(
    ("is_on_emr", "words"),
    [(False, "another software.image that has"), (True, "another release or image that has")],
)
def test_the_remedy_names_the_props_that_bring_another_driver(stand, parts, is_on_emr, words):
    age_driver(stand)
    node = stand.node(0, settings=HOROVOD, image=parts / "whole")
    if is_on_emr:
        (node.root / EMR_INFO_DIRECTORY.lstrip("/")).mkdir(parents=True)
    with pytest.raises(ProvisionFailure) as caught:
        node.provide()
    assert words in caught.value.remedy
