"""Every prop of every platform is in the table of docs/operating.md, which comes from its templates."""

from pathlib import Path

import pytest

from docs.changed_props import PLATFORMS, SAMPLES, list_props

PAGE = Path(__file__).parents[3] / "docs" / "operating.md"
STAYS, LATER_NODES, LATER_JOBS = "stays", "later nodes", "later jobs"
NODES, JOBS, DATA, REFUSED = "**nodes end**", "**jobs end**", "**data lost, jobs end**", "**refused**"
KNOWN = {
    # EKS user guide, "Customize managed nodes with launch templates": all nodes are recycled at another version.
    ("`image_disk`", "EKS"): NODES,
    # CloudFormation's schema of the node group: createOnlyProperties.
    ("`instance_type`", "EKS"): NODES,
    ("`node_image`", "EKS"): NODES,
    # Issue 1258 of aws/containers-roadmap: sizes and launch template in one update.
    ("`members`, fewer", "EKS"): NODES,
    # EKS user guide, "Update existing cluster to new Kubernetes version": one minor version, without a way back.
    ("`version`, former", "EKS"): REFUSED,
    ("`version`, two ahead", "EKS"): REFUSED,
    ("`version`, next", "EKS"): STAYS,
    # EMR user guide, "Manually resizing a running cluster"; CloudFormation's schema: createOnlyProperties.
    ("`members`, more", "EMR"): STAYS,
    ("`members`, fewer", "EMR"): NODES,
    ("`release`", "EMR"): NODES,
    # SageMaker API reference, CreateTrainingJob: a job has its own copy of its settings.
    ("`max_run`", "SageMaker"): LATER_JOBS,
    # EC2 Auto Scaling API reference, UpdateAutoScalingGroup: existing instances keep their configuration.
    ("`workers.volume_size`", "EC2"): LATER_NODES,
    ("`workers.desired_capacity`, fewer", "EC2"): NODES,
    # CloudFormation user guide, WaitCondition: updates are not supported.
    ("`setup_timeout`", "EC2"): REFUSED,
    # EFS user guide, "Creating or deleting mount targets": a deletion forcibly breaks any mounts through it.
    **{("`storage.file_system`", platform): JOBS for platform in PLATFORMS},
    # EFS API reference, CreateMountTarget: all mount targets of a file system are in one VPC.
    **{("`network.vpc`", platform): REFUSED for platform in PLATFORMS},
    # CloudFormation's schema of the backup vault, whose name stays: a custom-named resource is not replaced.
    **{("`encryption_key`", platform): REFUSED for platform in PLATFORMS},
    **{("`storage.lustre`, none again", platform): DATA for platform in ("EC2", "EMR", "SageMaker")},
    # FSx for Lustre user guide, "Managing storage capacity": increase only.
    **{("`storage.lustre.storage`, less", platform): REFUSED for platform in ("EC2", "EMR", "SageMaker")},
}
"""Entries that must be so, with the source."""


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_prop_of_a_platform_is_changed_once(platform):
    changed = {sample.prop for sample in SAMPLES if platform in sample.platforms}
    assert [prop for prop in list_props(platform) if prop not in changed] == []


def test_no_changed_prop_is_unknown():
    known = {prop for platform in PLATFORMS for prop in list_props(platform)}
    assert [sample.prop for sample in SAMPLES if sample.prop not in known] == []


def test_the_table_of_changes_agrees_with_the_services():
    lines = PAGE.read_text().partition("generated: changes -->")[2].partition("<!-- end")[0].strip().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    found = {(row[0], platform): cell for row in rows[2:] for platform, cell in zip(rows[0][1:], row[1:], strict=True)}
    assert {entry: found[entry] for entry in KNOWN} == KNOWN
