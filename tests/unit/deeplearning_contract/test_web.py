"""Addresses that are opened are on the web."""

import urllib.request

import pytest

from deeplearning_contract.web import open_address


@pytest.mark.parametrize("address", ["file:///etc/hostname", "ftp://127.0.0.1/secret", "data:,secret"])
def test_refuses_what_is_not_of_the_web(address):
    with pytest.raises(OSError, match="unknown url type"):
        open_address(urllib.request.Request(address), 5)  # noqa: S310 - it is refused
