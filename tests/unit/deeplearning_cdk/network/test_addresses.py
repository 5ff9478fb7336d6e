"""Subnets fit their VPC, and hold the nodes that they are said to hold."""

import ipaddress

import pytest

from deeplearning_cdk.network.addresses import VpcCidr, check_addresses, plan_subnets, usable_addresses
from deeplearning_cdk.props.check import check_prop


@pytest.mark.parametrize("prefix", range(16, 27))
def test_both_tiers_fit_and_the_nodes_get_the_larger(prefix):
    sizes = plan_subnets(f"10.0.0.0/{prefix}")
    whole = ipaddress.IPv4Network(f"10.0.0.0/{prefix}").num_addresses
    private, public = 2 ** (32 - sizes.private_prefix), 2 ** (32 - sizes.public_prefix)
    assert private + public <= whole
    assert public <= private
    assert sizes.public_prefix <= 28


@pytest.mark.parametrize("cidr", ["10.0.0.0/15", "10.0.0.0/27", "10.0.0.0", "10.0.0.0/x", "::/64", ""])
def test_other_networks_are_refused(cidr):
    with pytest.raises(ValueError, match=r"network\.cidr must be"):
        check_prop("network.cidr", cidr, VpcCidr)


def test_five_addresses_of_a_subnet_are_not_usable():
    assert usable_addresses(27) == 27


def test_master_mount_target_and_endpoints_take_addresses_too():
    check_addresses("it", 27, workers=25, has_master=True, isolated=False)
    check_addresses("it", 27, workers=26, has_master=False, isolated=False)
    check_addresses("it", 27, workers=19, has_master=True, isolated=True)
    for workers, has_master, isolated in ((26, True, False), (27, False, False), (20, True, True)):
        with pytest.raises(ValueError, match=f"got {workers}; lower"):
            check_addresses("it", 27, workers=workers, has_master=has_master, isolated=isolated)
