"""Addresses of the lab."""

import pytest

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab import Image, Lab
from cdk_rehearsal.lab.network import Network, mac_address


def test_a_hardware_address_follows_from_the_address():
    assert mac_address("10.0.128.37") == "02:00:0a:00:80:25"


@pytest.mark.parametrize("gateway", ["10.0.0.1/16", "router", "10.0.0.256"])
def test_a_gateway_is_one_address(gateway):
    with pytest.raises(RehearsalError, match=f"gateway must be an IPv4 address, got '{gateway}'"):
        Network(gateway)


@pytest.mark.parametrize("name", ["a:b", "a,b"])
def test_paths_that_an_overlay_cannot_take_are_refused(tmp_path, name):
    with pytest.raises(RehearsalError, match="work must not have ':'"):
        Lab(base_root=tmp_path, work=tmp_path / name, gateway="10.0.0.1", image=Image("http://10.0.0.1:5000"))
