"""An environment on its way from the master to every node, with real pip, real environments and a real compiler."""

import re
import shutil

import pytest

from deeplearning_node.programs import Programs
from deeplearning_provision.environments import flow
from deeplearning_provision.python import pip as pip_program
from deeplearning_provision.steps import ProvisionFailure
from tests.unit.deeplearning_provision.data_lab import read_tree
from tests.unit.deeplearning_provision.environment_lab import (
    LookingClock,
    Stand,
    StopWaiting,
    link_programs,
    make_image,
)

REQUIREMENTS = "pure\nnative==1.0\nheld\n"


@pytest.fixture(scope="module")
def cluster(parts, build, tmp_path_factory):
    """
    Three nodes that have their environment.

    The first worker asks before the master; a worker has no index, no compiler and no pip.
    """
    stand = Stand(tmp_path_factory.mktemp("cluster") / "cluster", parts / "index", parts / "image")
    bare = link_programs(stand.folder / "bare", ["sh"])
    with stand.pip_settings():
        master = stand.node(0, REQUIREMENTS)

        def run_master():
            master.provide()
            patch.setattr(pip_program.Pip, "run", None)

        workers = [stand.node(number, REQUIREMENTS, clock=LookingClock(run_master)) for number in (1, 2)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flow, "build_environment", build)
            for worker in workers:
                worker.programs = Programs(bare)
                worker.provide()
        yield stand, [master, *workers]


@pytest.fixture
def copy(stand, cluster):
    """Return a stand whose shared file system holds what the cluster made."""
    shutil.rmtree(stand.shared)
    shutil.copytree(cluster[0].shared, stand.shared)
    return stand


@pytest.mark.defect("D66", "D71", "D72")
def test_a_package_is_compiled_once_for_three_nodes_and_those_of_the_image_are_not_replaced(cluster):
    stand, nodes = cluster
    assert [line.split()[0] for line in stand.builds()] == ["native"]
    code = "import held, native, pure, inner, torch; print(native.answer, held.version, torch.__version__)"
    assert [node.ask(code) for node in nodes] == ["42 1.0 2.9.0+cpu"] * 3


def test_the_packages_of_an_environment_and_its_builder_are_recorded(cluster):
    stand, nodes = cluster
    assert stand.manifest["packages"] == ["inner==0.9", "native==1.0", "pure==1.0"]
    assert stand.manifest["built_by"] == nodes[0].facts.instance_id
    assert re.fullmatch(r"3 packages; built here in \d+ s", nodes[0].step.detail)
    assert (
        nodes[1].step.detail == f"3 packages; copied from the shared file system, built by {stand.manifest['built_by']}"
    )
    assert (nodes[1].step.state, nodes[1].step.done) == ("done", nodes[1].step.total)


def test_every_node_has_the_same_files_at_the_same_place_and_a_pip_of_its_own(cluster):
    stand, nodes = cluster
    (folder,) = stand.folders
    trees = [read_tree(node.current.resolve()) for node in nodes]
    for tree in trees:
        del tree["complete.json"]  # Only the archive's knows the archive.
    assert trees[0] == trees[1] == trees[2]
    assert {node.current.readlink().name for node in nodes} == {folder.name, stand.manifest["key"]}
    assert f'exec {nodes[0].current.resolve()}/bin/python -m pip "$@"' in (nodes[0].current / "bin/pip").read_text()


def test_a_second_run_does_nothing(cluster):
    stand, nodes = cluster
    before = [node.log for node in nodes], stand.builds()
    assert [node.provide().detail for node in nodes] == ["3 packages; already installed"] * 3
    assert ([node.log for node in nodes], stand.builds()) == before


def test_nothing_of_the_making_is_left(cluster):
    stand, nodes = cluster
    (folder,) = stand.folders
    memo = next(path.name for path in stand.kept.glob("*.json") if path.name != "digits.json")
    assert {path.name for path in stand.kept.iterdir()} == {folder.name, memo, "digits.json"}
    assert {path.name for path in folder.iterdir()} == {"complete.json", "environment.tar"}
    folders = {path.name for path in nodes[0].current.parent.iterdir() if path.is_dir()}
    assert folders == {folder.name, "current"}


def test_a_worker_waits_for_the_master_and_reports_it(stand):
    worker = stand.node(1)
    with pytest.raises(StopWaiting):
        worker.provide()
    assert (worker.step.state, worker.step.detail) == ("waiting", "waiting for the master to start")


def test_a_worker_of_another_image_says_what_differs(copy, tmp_path):
    make_image(tmp_path / "other", with_torch=False)
    worker = copy.node(1, REQUIREMENTS, image=tmp_path / "other")
    with pytest.raises(StopWaiting):
        worker.provide()
    assert "(frameworks {} here, {'torch': '2.9.0+cpu'} there)" in worker.step.detail
    assert worker.step.detail.endswith("use one image for both groups")


def test_an_unsatisfiable_requirement_is_final_in_pips_words_and_told_to_the_workers(stand):
    with pytest.raises(ProvisionFailure, match="pip install failed") as caught:
        stand.node(0, "pure>=7\n").provide()
    assert caught.value.is_final
    assert "No matching distribution found for pure>=7" in caught.value.output
    assert stand.folders == []
    worker = stand.node(1, "pure>=7\n")
    with pytest.raises(StopWaiting):
        worker.provide()
    assert worker.step.detail.startswith("waiting: the master failed: pip install failed")


@pytest.mark.parametrize(
    ("text", "encoding", "message"),
    [
        ("elsewhere\n", "utf-8", "did not reach its index"),
        (f"inner==0.9 --hash=sha256:{'0' * 64}\n", "utf-8", "a package does not match its hash"),
        (f"inner==0.9 --hash=sha256:{'0' * 64}\n", "utf-16", "a package does not match its hash"),
    ],
    ids=["no index", "another hash", "another hash in UTF-16"],
)
def test_an_index_that_does_not_answer_is_tried_again_and_a_wrong_hash_is_not(
    stand, monkeypatch, text, encoding, message
):
    if is_away := text == "elsewhere\n":
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
        monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(ProvisionFailure, match=message) as caught:
        stand.node(0, text, encoding=encoding).provide()
    assert caught.value.is_final is not is_away


def test_an_environment_that_was_kept_needs_neither_pip_nor_a_compiler(copy, monkeypatch):
    monkeypatch.setattr(pip_program.Pip, "run", None)
    master = copy.node(0, REQUIREMENTS, cluster="later", search_path=link_programs(copy.folder / "bare", ["sh"]))
    assert "copied from the shared file system" in master.provide().detail
    assert master.ask("import native, pure; print(native.answer)") == "42"


@pytest.mark.parametrize(
    "harm",
    [lambda data: data[:-9000] + b"x" + data[-8999:], lambda data: data[: len(data) // 2]],
    ids=["changed", "cut off"],
)
def test_a_damaged_archive_is_refused_by_a_worker_and_rebuilt_by_the_master(copy, harm, build, monkeypatch):
    monkeypatch.setattr(flow, "build_environment", build)
    (folder,) = copy.folders
    archive = folder / "environment.tar"
    whole = archive.read_bytes()
    archive.write_bytes(harm(whole).ljust(len(whole), b"\0"))
    worker = copy.node(1, REQUIREMENTS)
    with pytest.raises(ProvisionFailure, match="is damaged: it") as caught:
        worker.provide()
    assert not caught.value.is_final
    assert "environment --build on the master" in caught.value.remedy
    assert not worker.current.exists()
    assert [path.name for path in worker.current.parent.iterdir() if path.is_dir()] == []
    assert "built here in" in copy.node(0, REQUIREMENTS).provide().detail
    assert worker.provide().state == "done"
    assert worker.ask("import native; print(native.answer)") == "42"


def test_an_archive_that_was_cut_off_counts_as_none(copy):
    (folder,) = copy.folders
    with (folder / "environment.tar").open("rb+") as file:
        file.truncate(100)
    worker = copy.node(1, REQUIREMENTS)
    with pytest.raises(StopWaiting):
        worker.provide()
    assert worker.step.state == "waiting"


def test_horovod_is_built_for_the_images_framework_and_the_link_follows(copy):
    (first,) = copy.folders
    node = copy.node(0, "held\n", horovod="0.28.1")
    node.current.symlink_to(first.name)
    assert node.provide().detail.startswith("Horovod 0.28.1 for torch 2.9.0+cpu, 6 packages; built here in ")
    (line,) = copy.builds()
    assert {"horovod", "HOROVOD_WITH_PYTORCH=1", "HOROVOD_WITH_GLOO=1"} <= set(line.split())
    assert node.ask("import horovod.torch, cffi; print(horovod.torch.Sum)") == "1"
    assert node.current.resolve().name in {folder.name for folder in copy.folders} - {first.name}
    # Neither the image's framework nor what only the build needs.
    (packages,) = (node.current / "lib").glob("python*/site-packages")
    names = {path.stem.partition("-")[0] for path in packages.glob("*.dist-info")}
    assert names == {"horovod", "cloudpickle", "psutil", "pyyaml", "packaging", "cffi", "numpy"}
