"""Images of containers: from a kept environment, or built for machines without GPUs."""

import io
import json
import tarfile
from pathlib import Path

import pytest
from aws_cdk import App, Stack

from cdk_rehearsal.assembly import ImageAsset, read_stack
from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab.images.base_root import BaseRoot
from cdk_rehearsal.lab.images.container_image import BUILT_IMAGE, ContainerImage
from cdk_rehearsal.lab.namespaces import SYSTEM_PATH
from deeplearning_cdk import JobEnvironment, TrainingImage
from deeplearning_contract.names import ENVIRONMENT_DIRECTORY
from deeplearning_rehearsal.software import job_image
from deeplearning_rehearsal.software.job_image import (
    build_job_image,
    find_kept_image,
    find_or_build_image,
    prepare_image_packages,
)
from deeplearning_rehearsal.software.kept_environments import PLACE

RECIPE = {
    "kind": "horovod",
    "source": "torch==2.13.0",
    "python": "/usr/bin/python3 3.11.2",
    "has_mpi": False,
    "horovod": "0.28.1",
}
PATH = f"{ENVIRONMENT_DIRECTORY}/current/bin:{SYSTEM_PATH}"
BASE = BaseRoot(Path("/base/root"), Path("/base/archive"))


@pytest.fixture
def synthesize(tmp_path):
    def make(**props):
        app = App(outdir=str(tmp_path / "cdk.out"), analytics_reporting=False, builtin_cloud_formation_validation=False)
        TrainingImage(Stack(app, "Images"), "Image", **props)
        app.synth()
        (asset,) = read_stack(tmp_path / "cdk.out", None).images
        return asset

    return make


@pytest.fixture
def cache(tmp_path):
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def keep(cache, key, **recipe):
    """Keep an environment that has one program."""
    folder = cache / "environments" / PLACE / key
    folder.mkdir(parents=True)
    entry = tarfile.TarInfo("bin/python")
    entry.size, entry.mode, entry.uid = len(key), 0o755, 1000
    with tarfile.open(folder / "environment.tar", "w") as archive:
        archive.addfile(entry, io.BytesIO(key.encode()))
    (folder / "complete.json").write_text(json.dumps({"key": key, "recipe": {**RECIPE, **recipe}}))
    (folder.parent / f"{key[0] * 24}.json").write_text(json.dumps({"key": key, "boot": ""}))


@pytest.fixture
def built(monkeypatch):
    """Images that are built: settings, packages."""
    calls = []

    def build(asset, base, packages, cache, _report):
        files = {path.name for path in asset.directory.rglob("*") if path.is_file()}
        calls.append((json.loads((asset.directory / "node.json").read_text()), files, packages))
        assert asset.dockerfile.is_file()
        return ContainerImage((cache / base.key,), {"PATH": PATH}, BUILT_IMAGE)

    monkeypatch.setattr(job_image, "build_image", build)
    monkeypatch.setattr(job_image, "prepare_packages_of", lambda environment, find, *_: (environment, find))
    return calls


def test_a_kept_environment_is_unpacked_where_the_build_puts_it_and_named_as_a_stand_in(synthesize, cache):
    keep(cache, "a1")
    said = []
    image = find_kept_image(synthesize(), cache, said.append)
    assert image is not None
    (layer,) = image.layers
    place = layer / ENVIRONMENT_DIRECTORY.lstrip("/")
    assert (place / "current/bin/python").read_text() == "a1"
    assert (place / "current").readlink() == Path("a1")
    assert (place / "a1/bin/python").stat().st_uid == layer.stat().st_uid
    assert json.loads((place / "a1/complete.json").read_text())["key"] == "a1"
    assert image.environment == {
        "PATH": PATH,
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    assert "earlier rehearsal" in image.stand_in.behaviour
    assert find_kept_image(synthesize(), cache, said.append) == image
    assert len(said) == 1


@pytest.mark.parametrize(
    "recipe",
    [
        {"source": "torch==2.12.0"},
        {"kind": "requirements"},
        {"python": "/opt/pytorch/bin/python 3.11.2"},
        {"python": "/usr/bin/python3.12 3.11.2"},
        {"has_mpi": True},
        {"horovod": "0.28.0"},
    ],
)
def test_an_environment_that_the_image_would_not_have_is_left_alone(synthesize, cache, recipe):
    assert find_kept_image(synthesize(), cache, print) is None
    keep(cache, "a1", **recipe)
    assert find_kept_image(synthesize(), cache, print) is None
    keep(cache, "b1")
    image = find_kept_image(synthesize(), cache, print)
    assert image is not None
    assert "b1" in image.layers[0].name


def test_an_image_is_built_only_where_no_environment_is_kept(synthesize, cache, built):
    assert find_or_build_image(synthesize(), BASE, cache, print).stand_in.behaviour.startswith(BUILT_IMAGE.behaviour)
    assert len(built) == 1
    keep(cache, "a1")
    assert find_or_build_image(synthesize(), BASE, cache, print).stand_in == job_image.KEPT_IMAGE
    assert len(built) == 1


def test_the_packages_of_an_image_are_downloaded_before_the_lab_which_has_no_network(synthesize, cache, monkeypatch):
    downloaded = []
    monkeypatch.setattr(job_image, "prepare_packages_of", lambda environment, *_: downloaded.append(environment))
    asset = synthesize(instance_type="g5.12xlarge")
    prepare_image_packages(asset, cache, print)
    assert [environment.framework for environment in downloaded] == ["torch==2.13.0"]
    keep(cache, "a1")
    prepare_image_packages(asset, cache, print)
    assert len(downloaded) == 1, "a kept environment needs none"


def test_an_image_for_gpus_is_built_for_none_which_its_stand_in_says(synthesize, cache, built):
    asset = synthesize(instance_type="g5.12xlarge", environment=JobEnvironment.with_horovod(framework="torch==2.12.0"))
    original = (asset.directory / "node.json").read_text()
    image = build_job_image(asset, BASE, cache, print)
    ((settings, files, (environment, _)),) = built
    assert "compute_capability" in original
    assert "compute_capability" not in json.dumps(settings)
    assert settings["needs"]["environment"]["framework"] == environment.framework == "torch==2.13.0"
    assert files == {"Dockerfile", "agent.zip", "container_build.sh", "node.json"}
    assert image.stand_in.behaviour.endswith(
        "; built for torch==2.13.0 and no compute capability, because this machine has no GPU"
    )
    assert (asset.directory / "node.json").read_text() == original


def test_an_image_for_processors_is_built_as_it_is(synthesize, tmp_path, cache, built):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("numpy==2.3.5\n")
    asset = synthesize(instance_type="c6i.4xlarge", environment=JobEnvironment.from_requirements(str(requirements)))
    assert build_job_image(asset, BASE, cache, print).stand_in == BUILT_IMAGE
    ((settings, _, (environment, find)),) = built
    assert settings == json.loads((asset.directory / "node.json").read_text())
    assert environment.kind == "requirements"
    assert find().read_text() == "numpy==2.3.5\n"


def test_another_image_than_a_training_image_is_refused(tmp_path, cache):
    asset = ImageAsset(tmp_path, tmp_path / "Dockerfile", {}, "images:tag")
    with pytest.raises(UnavailableError, match="image must be a TrainingImage in the rehearsal, got"):
        find_or_build_image(asset, BASE, cache, print)
