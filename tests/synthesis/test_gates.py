"""The packs of cdk-nag find nothing in any preset; `make check` runs every gate over the same presets."""

import pytest

from tests.gates.acknowledgements import look_at_acknowledgements
from tests.gates.assembly import synthesize
from tests.gates.planting import open_ssh
from tests.gates.presets import PRESETS, grant_all
from tests.gates.promises import check_promises
from tests.gates.template_gates import look_with_cdk


def _found(preset, folder, **changes):
    assembly = synthesize(preset, PRESETS[preset], folder / "out", has_validator=False, **changes)
    findings = [*look_with_cdk(assembly), *check_promises(assembly), *look_at_acknowledgements(assembly)]
    return [f"{finding.rule} {finding.place}: {finding.what}" for finding in findings]


@pytest.mark.parametrize(
    "preset", ["default", "private", "existing-vpc-and-efs", "fallbacks", "capacity-block", "emr", "sagemaker", "eks"]
)
def test_packs_and_promises_find_nothing(preset, tmp_path):
    assert _found(preset, tmp_path) == []


@pytest.mark.parametrize("preset", ["cpu", "emr", "sagemaker", "eks"])
def test_packs_find_nothing_in_what_a_cluster_grants(preset, tmp_path):
    assembly = synthesize(preset, PRESETS[preset], tmp_path / "out", has_validator=False, alter=grant_all)
    assert [*look_with_cdk(assembly), *look_at_acknowledgements(assembly)] == []
    # The role of a person is for the account.
    assert {finding.rule for finding in check_promises(assembly)} == {"roles_are_taken_by_services_alone"}


def test_packs_and_promises_would_find_a_hole(tmp_path):
    found = " ".join(_found("cpu", tmp_path, alter=open_ssh))
    assert "AwsSolutions-EC23" in found
    assert "no_address_range_of_everyone_is_admitted" in found
