"""The index and the images of every cluster in these tests, made once: see environment_lab.py."""

import hashlib

import pytest

from deeplearning_provision.environments import flow
from deeplearning_provision.horovod import plan as horovod_plan
from tests.unit.deeplearning_provision.environment_lab import (
    TORCH,
    BuildOnce,
    Stand,
    describe,
    make_image,
    make_index,
    write_wheel,
)


@pytest.fixture(scope="session")
def parts(tmp_path_factory):
    """Return the folder of the index and of the images: plain, with PyTorch, with Horovod too, each with CUDA 13."""
    folder = tmp_path_factory.mktemp("parts")
    make_index(folder / "index")
    headers = {f"torch/include/{name}": "" for name in ("torch/extension.h", "pybind11/pybind11.h")}
    write_wheel(folder / "index", "torch", "2.9.0", {"torch/__init__.py": TORCH, **headers})
    make_image(folder / "plain", with_torch=False)
    for name, with_horovod in (("image", False), ("whole", True), ("cuda", False), ("whole-cuda", True)):
        make_image(folder / name, with_horovod=with_horovod)
    for packages in folder.glob("*cuda/lib/python*/site-packages"):
        (packages / "torch/version.py").write_text("cuda = None\n")
        info = packages / "nvidia_cuda_runtime-13.0.96.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(describe("nvidia-cuda-runtime", "13.0.96"))
    return folder


@pytest.fixture
def stand(parts, tmp_path, monkeypatch):
    source = parts / "index/horovod-0.28.1.tar.gz"
    monkeypatch.setitem(horovod_plan.SOURCES, "0.28.1", hashlib.sha256(source.read_bytes()).hexdigest())
    with Stand(tmp_path / "cluster", parts / "index", parts / "image").pip_settings() as stand:
        yield stand


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    return BuildOnce(flow.build_environment, tmp_path_factory.mktemp("built"))
