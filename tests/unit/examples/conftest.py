"""The elastic example and its launcher, without PyTorch, Horovod and a cluster; and what stages data for others."""

import contextlib
import importlib.util
import json
import sys
import types
from pathlib import Path

import pytest

from tests.unit.deeplearning_provision.data_lab import REGION, DataLab, serve_s3
from tests.unit.examples.range_server import RangeServer
from tests.unit.examples.staging_lab import StagingLab

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def web():
    """A web server to download from."""
    with contextlib.closing(RangeServer()) as server:
        yield server


@pytest.fixture
def data_lab(monkeypatch, tmp_path):
    """A node that stages data from an empty moto."""
    with serve_s3(monkeypatch) as proxy:
        yield DataLab(tmp_path, proxy)


@pytest.fixture
def staging(data_lab, web, tmp_path):
    """A user's machine with `stage_data.sh`, and an empty bucket."""
    data_lab.client.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": REGION})
    (tmp_path / "desk").mkdir()
    return StagingLab(tmp_path / "desk", web)


@pytest.fixture
def horovod():
    """Return a stand-in for `horovod.torch`; tests add the attributes that they need."""
    return types.SimpleNamespace(init=lambda: None, shutdown=lambda: None, rank=lambda: 0, size=lambda: 1)


@pytest.fixture
def elastic(monkeypatch, horovod):
    """The module `train_elastic`; what it imports from the nodes' image is not here, so stand-ins are imported."""
    torch = types.SimpleNamespace(Tensor=object, save=lambda content, path: path.write_text(json.dumps(content)))
    stand_ins = {
        "torch": torch,
        "horovod": types.SimpleNamespace(torch=horovod),
        "horovod.torch": horovod,
        "horovod.torch.elastic": types.SimpleNamespace(TorchState=object),
        "horovod.common.elastic": types.SimpleNamespace(run_fn=None),
        "digits": types.SimpleNamespace(SEED=2018, load_digits=None, split=None),
    }
    for name, module in stand_ins.items():
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("train_elastic", EXAMPLES / "train_elastic.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
