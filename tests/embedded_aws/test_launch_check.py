"""Auto Scaling refuses a group whose launch template cannot be launched, before anything is launched."""

import pytest

WORKER = {"deeplearning:role": "worker"}

REFUSED = "You must use a valid fully-formed launch template. "


@pytest.fixture
def fail(start_cloud, assemble, sample_template, tmp_path):
    """Return a function that deploys the sample with a changed template of the workers, and returns why it failed."""

    def deploy(change=None, **options):
        sample_template["Resources"]["WorkerTemplate"]["Properties"]["LaunchTemplateData"] |= change or {}
        cloud = start_cloud(**options)
        cloud.deploy(assemble(tmp_path / "cdk.out", sample_template))
        outcome = cloud.command("wait", seconds=20)
        assert outcome["status"] == "ROLLBACK_COMPLETE"
        failed = [entry["logical_id"] for entry in outcome["resources"] if entry["reason"] == outcome["reason"]]
        assert [name for name in failed if name.endswith("Group")]
        assert cloud.seen("launched for worker") == []
        return outcome["reason"]

    return deploy


def card(**values):
    return {"DeviceIndex": 0, **values}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"KeyName": "nobodys"}, "The key pair 'nobodys' does not exist"),
        ({"SecurityGroupIds": ["sg-0123456789abcdef0"]}, "The security group 'sg-0123456789abcdef0' does not exist"),
        ({"InstanceType": "c5.huge"}, "Invalid value 'c5.huge' for InstanceType."),
        (
            {"NetworkInterfaces": [card()]},
            "When a network interface is provided, the security groups must be a part",
        ),
        ({"SecurityGroupIds": [], "NetworkInterfaces": [card(), card()]}, "requires a unique device index"),
        ({"SecurityGroupIds": [], "NetworkInterfaces": [card(DeviceIndex=1)]}, "A primary network interface must have"),
        (
            {
                "SecurityGroupIds": [],
                "NetworkInterfaces": [card(AssociatePublicIpAddress=True), card(DeviceIndex=1)],
            },
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple",
        ),
        (
            {"SecurityGroupIds": [], "NetworkInterfaces": [card(), card(DeviceIndex=1, NetworkCardIndex=31)]},
            "Network card index 31 is not valid for the instance type 'c5.large'",
        ),
        (
            {"SecurityGroupIds": [], "NetworkInterfaces": [card(InterfaceType="efa")]},
            "1 EFA interfaces are not supported by the instance type 'c5.large'",
        ),
    ],
)
def test_a_template_that_cannot_be_launched_fails_the_group_in_auto_scalings_words(fail, change, words):
    reason = fail(change)
    assert reason.startswith(REFUSED)
    assert words in reason


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("InvalidAMIID.NotFound", "The image id '[ami-0123456789abcdef0]' does not exist"),
        ("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of 0 allows"),
    ],
)
def test_a_missing_image_or_a_used_up_quota_may_fail_the_group(fail, code, message):
    fault = {"code": code, "tags": WORKER, "at_creation": True, "message": message}
    assert fail(faults=[fault]) == REFUSED + message


@pytest.mark.parametrize("code", ["InvalidAMIID.NotFound", "VcpuLimitExceeded"])
def test_the_same_may_be_found_by_the_first_launch_alone(start_cloud, asking_assembly, code):
    cloud = start_cloud(faults=[{"code": code, "tags": WORKER, "message": "words of EC2."}])
    cloud.deploy(asking_assembly)
    cloud.ask("WorkerGroup", 1)
    cloud.observation(f"launch failed: {code}")
