"""Horovod as an environment: for the image's framework, for a pinned one, or nothing where the image has all of it."""

import hashlib
from dataclasses import replace

import pytest

from deeplearning_contract.names import EMR_INFO_DIRECTORY
from deeplearning_contract.setting_parts import EnvironmentSettings
from deeplearning_provision import disk
from deeplearning_provision.environments import build as environment_build
from deeplearning_provision.environments.build import BUILD_BYTES, CUDA_BYTES
from deeplearning_provision.environments.kinds import provide_image
from deeplearning_provision.environments.recipe import Recipe, find_recipe
from deeplearning_provision.environments.site import BuildSite
from deeplearning_provision.horovod import plan as horovod_plan
from deeplearning_provision.horovod.build import write_program
from deeplearning_provision.horovod.framework_facts import Framework
from deeplearning_provision.program_log import follow_compiler, follow_pip
from deeplearning_provision.python import pip as pip_program
from deeplearning_provision.python.interpreter import ask_interpreter
from deeplearning_provision.status import Status
from deeplearning_provision.steps import ProvisionFailure
from tests.unit.deeplearning_provision.environment_lab import (
    HOROVOD,
    NATIVE,
    StopWaiting,
    link_programs,
    make_image,
    make_managers,
    write_source,
)
from tests.unit.deeplearning_provision.environments.test_interrupted import Room

SETTINGS = EnvironmentSettings("horovod", horovod="0.28.1", framework="torch==2.9.0")
OF_IMAGE = replace(SETTINGS, framework="")
OLD_DRIVER = r"CUDA 13\.0 of the software of jobs needs NVIDIA driver 580 or newer, the host has 535\.183\.01"


class PipAsked(Exception):  # noqa: N818 - no error
    """Ends a node that asks pip: it builds."""


def stop(*_, **__):
    raise PipAsked


def test_a_plain_image_gets_the_pinned_framework_and_workers_need_no_pip(stand, parts, monkeypatch):
    node = stand.node(0, settings=SETTINGS, image=parts / "plain")
    node.provide()
    monkeypatch.setattr(pip_program.Pip, "run", None)
    bare = link_programs(stand.folder / "bare", ["sh"])
    worker = stand.node(1, settings=SETTINGS, image=parts / "plain", search_path=bare)
    assert worker.provide().detail.startswith("Horovod 0.28.1 for torch 2.9.0+cpu, 7 packages; copied from the shared")
    assert worker.ask("import horovod.torch; print(horovod.torch.Sum)") == "1"


def test_an_image_that_brings_everything_is_used_as_it_is(stand, parts, monkeypatch):
    monkeypatch.setattr(pip_program.Pip, "run", None)
    for number in (1, 0):
        node = stand.node(number, settings=SETTINGS, image=parts / "whole", search_path="/nowhere")
        assert node.provide().detail == (
            "the image's own Horovod for torch 2.9.0+cpu, at /opt/pytorch/bin/python; nothing was built"
        )
        assert node.current.resolve() == parts / "whole"
        assert node.ask("import horovod.torch; print(horovod.torch.Sum)") == "1"
    assert list(stand.shared.iterdir()) == []


def test_a_python_of_the_system_that_has_everything_is_shown_by_an_environment_of_its_own(stand, parts):
    node = stand.node(0, settings=SETTINGS, image=parts / "whole")
    site = BuildSite(node.facts, Status(node.root, node.clock), node.root, node.programs, node.clock)
    found = ask_interpreter(node.root / "opt/pytorch/bin/python", node.programs)
    of_system = replace(found, path="/usr/bin/python3", is_virtual=False)
    for _ in range(2):
        assert provide_image(site, of_system).endswith("at /usr/bin/python3; nothing was built")
        assert str(node.current.readlink()) == "image"
        assert node.ask("print(1)") == "1"
    assert node.log.count(" -m venv ") == 1


def test_an_image_whose_horovod_does_not_import_gets_one_that_does(stand, tmp_path, monkeypatch):
    make_image(tmp_path / "broken", with_horovod=True)
    (packages,) = (tmp_path / "broken/lib").glob("python*/site-packages")
    (packages / "horovod/torch/__init__.py").write_text("raise ImportError('undefined symbol')\n")
    monkeypatch.setattr(pip_program.Pip, "run", stop)
    node = stand.node(0, settings=SETTINGS, image=tmp_path / "broken")
    with pytest.raises(PipAsked):
        node.provide()
    assert "undefined symbol" in node.log


@pytest.mark.parametrize(
    ("framework", "image", "message"),
    [
        ("", "plain", "must have torch, tensorflow or mxnet when no framework is pinned"),
        ("tensorflow==2.16.2", "image", r"got tensorflow==2\.16\.2 beside torch 2\.9\.0\+cpu"),
        ("tensorflow==2.16.2", "whole", r"got tensorflow==2\.16\.2 beside torch 2\.9\.0\+cpu"),
    ],
)
def test_an_image_that_does_not_go_with_the_framework_is_refused(stand, parts, framework, image, message):
    node = stand.node(0, settings=replace(SETTINGS, framework=framework), image=parts / image)
    with pytest.raises(ProvisionFailure, match=message) as caught:
        node.provide()
    assert "an image" in caught.value.remedy
    assert caught.value.is_final


def test_a_framework_that_the_gpus_cannot_run_is_refused_before_anything_is_compiled(stand, monkeypatch):
    found = Framework("2.15.0+cu132", "13.2", kernels=("sm_75", "sm_80"))
    monkeypatch.setattr(horovod_plan, "ask_framework", lambda *_: found)
    node = stand.node(0, settings=SETTINGS, capability="7.0")
    with pytest.raises(ProvisionFailure, match="no kernels for GPUs of compute capability 7") as caught:
        node.provide()
    assert "torch==2.7.1" in caught.value.remedy
    assert stand.builds() == []
    assert stand.folders == []


def test_an_environment_of_another_gpu_system_or_mpi_is_another_one(stand):
    node = stand.node(0, settings=SETTINGS)

    def digest(**needs):
        other = stand.node(0, settings=SETTINGS, **needs)
        return find_recipe(other.facts, SETTINGS, node.root, node.programs)[0].digest

    first = digest()
    assert digest() == first
    assert len({first, digest(capability="7.0"), digest(capability="9.0")}) == 3
    (node.root / "etc").mkdir()
    (node.root / "etc/os-release").write_text('NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="24.04"\n')
    second = digest()
    (node.root / "opt/amazon/openmpi/bin").mkdir(parents=True)
    (node.root / "opt/amazon/openmpi/bin/mpicxx").touch()
    assert len({first, second, digest()}) == 3


def test_the_key_follows_packages_and_compilers_and_the_recipe_of_horovod(monkeypatch):
    recipe = Recipe("horovod", "torch==2.9.0", "linux-x86_64", horovod="0.28.1")
    keys = [recipe.key(["a==1 aa"], {"g++": "12"})]
    assert recipe.key(["a==1 aa"], {"g++": "12"}) == keys[0]
    keys += [recipe.key(["a==1 bb"], {"g++": "12"}), recipe.key(["a==1 aa"], {"g++": "13"})]
    monkeypatch.setattr("deeplearning_provision.environments.recipe.HOROVOD_RECIPE", "next")
    keys.append(recipe.key(["a==1 aa"], {"g++": "12"}))
    assert len(set(keys)) == 4
    assert recipe.digest == replace(recipe).digest


@pytest.mark.parametrize(("capability", "size"), [("7.0", BUILD_BYTES + CUDA_BYTES), ("", BUILD_BYTES)])
def test_a_disk_that_is_too_small_for_the_build_is_reported_before_pip_runs(
    stand, parts, monkeypatch, capability, size
):
    monkeypatch.setattr(disk, "read_room", lambda _: Room(size))
    monkeypatch.setattr(pip_program.Pip, "run", None)
    node = stand.node(0, settings=SETTINGS, image=parts / "plain", capability=capability)
    whole = (size + disk.RESERVE_BYTES) / (1 << 30)
    with pytest.raises(ProvisionFailure, match=f"build: {whole:.1f} GiB must be free") as caught:
        node.provide()
    assert "larger workers.volume_size" in caught.value.remedy
    assert [path.name for path in node.current.parent.iterdir() if path.is_dir()] == []


def test_a_compiler_that_fails_is_shown_with_its_first_error_and_leaves_nothing(stand, monkeypatch):
    index = stand.folder / "index"
    index.mkdir()
    for path in stand.index.iterdir():
        (index / path.name).symlink_to(path)
    (index / "horovod-0.28.1.tar.gz").unlink()
    broken = write_source(index, "horovod", "0.28.1", HOROVOD, {"native.c": f"{NATIVE}\nint f() {{ return no; }}\n"})
    monkeypatch.setitem(horovod_plan.SOURCES, "0.28.1", hashlib.sha256(broken.read_bytes()).hexdigest())
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    node = stand.node(0, settings=SETTINGS)
    with pytest.raises(ProvisionFailure, match=r"could not compile Horovod 0\.28\.1 for torch") as caught:
        node.provide()
    assert "native.c:10:18: error: " in caught.value.output.splitlines()[0]
    assert "torchrun" in caught.value.remedy
    assert caught.value.is_final
    assert stand.folders == []
    assert [path.name for path in node.current.parent.iterdir() if path.is_dir()] == []


def test_packages_of_the_build_are_installed_only_where_they_are_missing(stand, monkeypatch):
    calls = []
    monkeypatch.setattr(
        environment_build, "install_system_packages", lambda _, __, names, ___: calls.append(sorted(names))
    )
    monkeypatch.setattr(pip_program.Pip, "run", stop)
    managers = make_managers(stand.folder / "managers")
    lacking = link_programs(stand.folder / "lacking", ["sh"])
    for search_path in (f"{managers}:{lacking}", None):
        with pytest.raises(PipAsked):
            stand.node(0, settings=SETTINGS, search_path=search_path).provide()
    assert calls == [["g++", "make"]]


def test_a_compilation_reports_cmakes_percentages_below_100_and_no_time_left_which_they_cannot_tell():
    """CMake writes `[100%] Linking` before the linker has run."""
    told = []
    read = follow_compiler(lambda *step: told.append(step), "compiling Horovod")
    for line in [
        "running cmake",
        "[  3%] x",
        "  [ 25%] y",
        "[ 25%] z",
        "[ 98%] the file that takes ten minutes",
        "[100%] Linking CXX shared library mpi_lib_v2.so",
        "[100%] Built target pytorch",
        "[400%] odd",
    ]:
        read(line)
    assert told == [
        ("compiling Horovod", 3, 100, "%"),
        ("compiling Horovod", 25, 100, "%"),
        ("compiling Horovod; the last files take longest", 98, 100, "%"),
        ("compiling Horovod; the last files take longest", 99, 100, "%"),
    ]


def test_pips_lines_say_what_it_downloads_and_how_many_are_left():
    told = []
    read = follow_pip(lambda *step: told.append(step), 2)
    for line in [
        "Collecting torch@ https://index/torch.whl (from -r exact.txt (line 1))",
        "  Downloading https://index/torch-2.7.1-cp312.whl (821.2 MB)",
        "Collecting native@ https://index/native.tar.gz",
        "  Building wheel for native (pyproject.toml): started",
        "Installing collected packages: torch, native",
    ]:
        read(line)
    assert told == [
        ("collecting packages", 0, 2, "packages"),
        ("downloading torch (821.2 MB)", 0, 2, "packages"),
        ("downloading torch (821.2 MB)", 2, 2, "packages"),
        ("building native", 2, 2, "packages"),
        ("installing the packages, all 2 downloaded", 0, 0, ""),
    ]


# --- The NVIDIA driver against the CUDA of the environment --------------------------------------------


def write_driver(stand, version="535.183.01"):
    """Give every node an nvidia-smi that prints a driver's version."""
    make_managers(stand.folder / "managers")
    write_program(stand.folder / "managers/nvidia-smi", f"#!/bin/sh\necho {version}\n")


def test_a_driver_that_is_too_old_fails_a_build_before_horovod_is_compiled_and_workers_report_it(stand, parts):
    write_driver(stand)
    with pytest.raises(ProvisionFailure, match=OLD_DRIVER) as caught:
        stand.node(0, settings=OF_IMAGE, image=parts / "cuda").provide()
    assert caught.value.is_final
    assert stand.builds() == []
    worker = stand.node(1, settings=OF_IMAGE, image=parts / "cuda")
    with pytest.raises(StopWaiting):
        worker.provide()
    assert "waiting: the master failed: CUDA 13.0" in worker.step.detail


def test_a_worker_whose_driver_is_too_old_refuses_the_environment_that_the_master_built(stand, parts):
    assert stand.node(0, image=parts / "cuda").provide().state == "done"
    write_driver(stand)
    with pytest.raises(ProvisionFailure, match=OLD_DRIVER):
        stand.node(1, image=parts / "cuda").provide()


@pytest.mark.parametrize(
    ("is_on_emr", "words"),
    [(False, "another software.image that has"), (True, "another release or image that has")],
)
def test_a_driver_that_is_too_old_for_the_images_software_fails_with_the_props_that_bring_another(
    stand, parts, is_on_emr, words
):
    node = stand.node(0, settings=OF_IMAGE, image=parts / "whole-cuda")
    if is_on_emr:
        (node.root / EMR_INFO_DIRECTORY.lstrip("/")).mkdir(parents=True)
    write_driver(stand)
    with pytest.raises(ProvisionFailure, match=OLD_DRIVER) as caught:
        node.provide()
    assert words in caught.value.remedy
    write_driver(stand, "580.95.05")
    assert node.provide().state == "done"
