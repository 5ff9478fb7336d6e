"""Acknowledgements are needed: without one, every id of the table is raised somewhere."""

import pytest

from deeplearning_cdk.security.acknowledged_rules import ACKNOWLEDGED_RULES
from tests.gates.acknowledgements import list_acknowledged, look_at_acknowledgements
from tests.gates.nag_2 import check_with_nag_2
from tests.gates.presets import PRESETS
from tests.gates.process_gates import check_with_checkov


@pytest.fixture(scope="module")
def presets(sound):
    """Return every preset as it is."""
    return [sound(preset) for preset in PRESETS]


def test_every_id_of_cdk_nag_hides_a_finding(presets):
    # The packs list what they found and left out.
    hidden = {found.partition("[")[0] for preset in presets for found, _, _ in list_acknowledged(preset)}
    listed = {f"{pack}::{pack}-{name}" for rule in ACKNOWLEDGED_RULES.values() for pack, name in rule.nag_ids.items()}
    assert listed - hidden == set()


def test_every_skip_of_checkov_hides_a_finding(presets):
    def bare(template):
        for resource in template["Resources"].values():
            resource.pop("Metadata", None)

    skips = {
        (found, place)
        for preset in presets
        for found, _, place in list_acknowledged(preset)
        if found.startswith("CKV_")
    }
    raised = {
        (finding.rule, finding.place)
        for finding in check_with_checkov([preset.change(f"bare-{preset.preset}", bare) for preset in presets])
    }
    assert skips - raised == set()
    assert {found for found, _ in skips} == {each for rule in ACKNOWLEDGED_RULES.values() for each in rule.checkov_ids}


def test_nothing_else_is_acknowledged(presets):
    assert [finding for preset in presets for finding in look_at_acknowledgements(preset)] == []


def test_cdk_nag_2_finds_nothing_but_a_planted_hole():
    assert check_with_nag_2(["cpu", "emr", "sagemaker", "eks"]) == []
    assert {finding.rule for finding in check_with_nag_2(["cpu"], "open_ssh")} >= {"AwsSolutions-EC23"}
