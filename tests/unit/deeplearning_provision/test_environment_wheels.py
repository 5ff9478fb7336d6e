"""An environment of a requirements file, with real pip, real environments and a real compiler."""

import hashlib
import json
import shutil

import pytest

from deeplearning_agent.programs import Programs
from deeplearning_provision import horovod_plan
from deeplearning_provision.environment_wheels import _is_whole, _put_in_place
from deeplearning_provision.steps import ProvisionFailure
from deeplearning_provision.wheels import Manifest, list_wheels
from tests.unit.deeplearning_provision.environment_lab import (
    LookingClock,
    Stand,
    StopWaiting,
    link_programs,
    make_image,
    make_index,
    write_wheel,
)

REQUIREMENTS = "pure\nnative==1.0\nheld\n"


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Make what all stands share: an index, the source of Horovod in it, and an image."""
    folder = tmp_path_factory.mktemp("parts")
    source = make_index(folder / "index")
    make_image(folder / "image")
    return folder, source


@pytest.fixture
def stand(parts, tmp_path):
    folder, _ = parts
    with Stand(tmp_path / "cluster", folder / "index", folder / "image").pip_settings() as stand:
        yield stand


@pytest.fixture(scope="module")
def cluster(parts, tmp_path_factory):
    """
    Three nodes that have their environment.

    The first worker asks before the master; a worker has neither an index nor a compiler.
    """
    folder, _ = parts
    stand = Stand(tmp_path_factory.mktemp("cluster") / "cluster", folder / "index", folder / "image")
    bare = link_programs(stand.folder / "bare", ["sh"])
    with stand.pip_settings():
        master = stand.node(0, REQUIREMENTS)

        def run_master():
            master.provide()
            patch.delenv("PIP_FIND_LINKS")

        workers = [stand.node(number, REQUIREMENTS, clock=LookingClock(run_master)) for number in (1, 2)]
        with pytest.MonkeyPatch.context() as patch:
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


@pytest.mark.defect("D71")
def test_a_package_is_compiled_once_for_three_nodes(cluster):
    stand, nodes = cluster
    assert [line.split()[0] for line in stand.builds()] == ["native"]
    assert [node.ask("import native, pure, inner; print(native.answer)") for node in nodes] == ["42"] * 3


@pytest.mark.defect("D66", "D72")
def test_packages_of_the_image_stay_visible_and_are_not_replaced(cluster):
    _, nodes = cluster
    assert {node.ask("import held, torch; print(held.version, torch.__version__)") for node in nodes} == {
        "1.0 2.9.0+cpu"
    }


def test_the_manifest_says_what_was_made_and_by_whom(cluster):
    stand, nodes = cluster
    assert [wheel["file"].split("-")[0] for wheel in stand.manifest["wheels"]] == ["inner", "native", "pure"]
    assert stand.manifest["built_by"] == nodes[0].facts.instance_id
    assert nodes[1].step.detail.startswith(f"3 wheels, made by {nodes[0].facts.instance_id} in ")
    assert (nodes[1].step.state, nodes[1].step.done, nodes[1].step.total) == ("done", 3, 3)


def test_the_environment_has_a_pip_of_its_own(cluster):
    _, nodes = cluster
    assert f'exec {nodes[0].current.resolve()}/bin/python -m pip "$@"' in (nodes[0].current / "bin/pip").read_text()


def test_a_second_run_does_nothing(cluster):
    stand, nodes = cluster
    before = [node.log for node in nodes], stand.builds()
    assert [node.provide().state for node in nodes] == ["done"] * 3
    assert ([node.log for node in nodes], stand.builds()) == before


def test_nothing_of_the_making_is_left(cluster):
    stand, nodes = cluster
    (folder,) = stand.folders
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, "digits.json"}
    folders = {path.name for path in nodes[0].current.parent.iterdir() if path.is_dir()}
    assert folders == {folder.name, "current"}


def test_a_worker_waits_for_the_master_and_says_so(stand):
    worker = stand.node(1)
    with pytest.raises(StopWaiting):
        worker.provide()
    assert (worker.step.state, worker.step.detail) == ("waiting", "waiting for the master to begin")


def test_a_worker_of_another_image_says_what_differs(copy, tmp_path):
    make_image(tmp_path / "other", with_torch=False)
    worker = copy.node(1, REQUIREMENTS, image=tmp_path / "other")
    with pytest.raises(StopWaiting):
        worker.provide()
    assert "(frameworks {} here, {'torch': '2.9.0+cpu'} there)" in worker.step.detail
    assert worker.step.detail.endswith("give both groups one image")


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


def test_an_index_that_does_not_answer_is_tried_again(stand, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(ProvisionFailure, match="did not reach its index") as caught:
        stand.node(0, "elsewhere\n").provide()
    assert not caught.value.is_final


def test_wrong_hashes_of_the_user_are_refused(stand):
    with pytest.raises(ProvisionFailure, match="a package is not what its hash says") as caught:
        stand.node(0, f"inner==0.9 --hash=sha256:{'0' * 64}\n").provide()
    assert caught.value.is_final


@pytest.mark.parametrize(
    ("harm", "message"),
    [(lambda data: data[:-1], "is not as long as"), (lambda data: data[:-1] + b"x", "is not what i-0.* made")],
    ids=["shorter", "changed"],
)
def test_a_wheel_that_was_harmed_is_not_installed(copy, monkeypatch, harm, message):
    monkeypatch.delenv("PIP_FIND_LINKS")
    (folder,) = copy.folders
    wheel = folder / "inner-0.9-py3-none-any.whl"
    wheel.write_bytes(harm(wheel.read_bytes()))
    worker = copy.node(1, REQUIREMENTS)
    with pytest.raises(ProvisionFailure, match=message) as caught:
        worker.provide()
    assert caught.value.is_final
    assert not worker.current.exists()


def test_a_folder_that_lost_a_wheel_is_replaced_and_a_whole_one_is_kept(tmp_path):
    fresh, again, folder = (tmp_path / name for name in ("fresh", "again", "folder"))
    for path in (fresh, again):
        path.mkdir()
        write_wheel(path, "inner", "0.9", {"inner.py": ""})
        Manifest({}, list_wheels(path), path.name, 1.0).write(path)
    shutil.copytree(fresh, folder)
    (folder / "inner-0.9-py3-none-any.whl").unlink()
    assert not _is_whole(folder)
    _put_in_place(fresh, folder)
    assert _is_whole(folder)
    _put_in_place(again, folder)
    assert Manifest.read(folder).built_by == "fresh"


def test_an_installation_that_was_interrupted_is_made_anew(copy):
    node = copy.node(1, REQUIREMENTS)
    (folder,) = copy.folders
    half = node.current.parent / folder.name
    half.mkdir()
    (half / "left").touch()
    assert node.provide().state == "done"
    assert node.ask("import pure; print(pure.version)") == "1.0"
    assert not (half / "left").exists()


def test_horovod_is_built_for_the_images_framework_and_the_link_follows(copy, parts, monkeypatch):
    _, source = parts
    monkeypatch.setitem(horovod_plan.SOURCES, "0.28.1", hashlib.sha256(source.read_bytes()).hexdigest())
    (first,) = copy.folders
    node = copy.node(0, "held\n", horovod="0.28.1")
    node.current.symlink_to(first.name)
    assert node.provide().detail.endswith("Horovod 0.28.1 for torch 2.9.0+cpu")
    (line,) = copy.builds()
    assert {"horovod", "HOROVOD_WITH_PYTORCH=1", "HOROVOD_WITH_GLOO=1"} <= set(line.split())
    assert node.ask("import horovod.torch, cffi; print(horovod.torch.Sum)") == "1"
    assert node.current.resolve().name in {folder.name for folder in copy.folders} - {first.name}
    made = json.loads((node.current / "complete.json").read_text())["wheels"]
    # Neither the image's framework nor what only the build needs.
    names = {wheel["file"].split("-")[0] for wheel in made}
    assert names == {"horovod", "cloudpickle", "psutil", "pyyaml", "packaging", "cffi", "numpy"}


def test_horovod_in_the_file_too_is_refused(stand):
    with pytest.raises(ProvisionFailure, match="must not list horovod"):
        stand.node(0, "Horovod==0.28.1\n", horovod="0.28.1").provide()
