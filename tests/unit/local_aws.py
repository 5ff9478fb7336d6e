"""AWS as moto, empty and on this machine."""

import contextlib

import moto
import pytest
from moto.moto_api._internal.models import moto_api_backend

NOBODY_LISTENS = "http://127.0.0.1:9"


@contextlib.contextmanager
def empty_aws(endpoint=None):
    """
    Answer every AWS call by moto, with no trace of the last test and no way to a real account.

    Within this process without HTTP; with an endpoint over HTTP, for what a test starts in processes of its own.
    """
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as answering:
        for name, value in {
            "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent",
            "HTTPS_PROXY": NOBODY_LISTENS,  # for a process that a test starts: AWS's own address leads nowhere
        }.items():
            patch.setenv(name, value)
        if endpoint is None:
            patch.delenv("AWS_ENDPOINT_URL", raising=False)  # moto is asked for AWS's own addresses only
            answering.enter_context(moto.mock_aws())
        else:
            patch.setenv("AWS_ENDPOINT_URL", endpoint)
        moto_api_backend.reset()  # another lab may be open, and moto resets itself for the first one only
        yield
