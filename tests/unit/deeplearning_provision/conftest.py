"""A lab in which nodes stage data: see data_lab.py."""

import contextlib

import botocore.session
import pytest

from tests.unit.deeplearning_provision.data_lab import LOADER, DataLab, Proxy


@pytest.fixture
def proxy(aws_server, monkeypatch):
    """Lead S3's clients through a proxy to an empty moto."""
    monkeypatch.setattr(botocore.session, "create_loader", lambda _=None: LOADER)
    with contextlib.closing(Proxy(aws_server)) as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.url)
        yield found


@pytest.fixture
def data_lab(proxy, tmp_path):
    return DataLab(tmp_path, proxy)
