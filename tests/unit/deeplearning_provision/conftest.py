"""A lab in which nodes stage data: see data_lab.py."""

import pytest

from tests.unit.deeplearning_provision.data_lab import DataLab, serve_s3


@pytest.fixture
def proxy(monkeypatch):
    with serve_s3(monkeypatch) as found:
        yield found


@pytest.fixture
def data_lab(proxy, tmp_path):
    return DataLab(tmp_path, proxy)
