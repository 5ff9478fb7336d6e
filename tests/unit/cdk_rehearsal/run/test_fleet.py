"""The fleet of a rehearsal keeps what each machine is billed for."""

from types import SimpleNamespace

from cdk_rehearsal.run.fleet import Fleet
from cdk_rehearsal.run.timeline import Timeline


def test_an_instance_that_ec2_ends_before_its_boot_is_not_billed():
    fleet = Fleet(SimpleNamespace(), Timeline())
    fleet.power_off("i-0123456789abcdef0")
    assert fleet.billed == {}
