"""The image stays that of the stack's creation: CloudFormation asks for it again only when a property changes."""

from typing import Any

import pytest

from deeplearning_cdk import NodeImage
from deeplearning_contract.names import NodeRole

PIN = "Custom::PinnedImage"
UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"


def test_both_groups_start_from_the_pinned_image(synthesize: Any) -> None:
    made = synthesize()
    (name,) = made.of_type(PIN)
    for role in NodeRole:
        assert made.launch_data(role)["ImageId"] == {"Fn::GetAtt": [name, "ImageId"]}


def test_the_template_has_no_parameter_that_a_deployment_would_read_anew(synthesize: Any) -> None:
    template = synthesize().template
    assert not [each for each in template.get("Parameters", {}).values() if "Image" in str(each)]
    assert "{{resolve:ssm" not in str(template)


def test_the_pin_changes_with_the_image_and_the_release_alone(synthesize: Any) -> None:
    base = synthesize().only(PIN)
    assert (base["Parameter"], base["Release"]) == (UBUNTU, "1")
    other_props = {"worker_desired_capacity": 9, "mount_point": "/data", "worker_instance_type": "p3.8xlarge"}
    assert synthesize(**other_props).only(PIN) == base
    assert synthesize(image_release="2026-11-22").only(PIN)["Release"] == "2026-11-22"
    assert synthesize(image=NodeImage.deep_learning_ubuntu()).only(PIN)["Parameter"] != UBUNTU


def test_an_image_that_is_given_by_its_id_needs_no_pin(synthesize: Any) -> None:
    made = synthesize(image=NodeImage.from_ami_id("ami-0123456789abcdef0", login_user="ubuntu"))
    assert made.of_type(PIN) == {}
    assert made.launch_data(NodeRole.MASTER)["ImageId"] == "ami-0123456789abcdef0"


@pytest.mark.parametrize(
    ("parameter", "account"), [(UBUNTU, []), ("/team/images/training", [{"Ref": "AWS::AccountId"}])]
)
def test_the_function_may_read_this_one_parameter_and_write_its_log_and_dead_letters(
    synthesize: Any, parameter: str, account: list[Any]
) -> None:
    """
    The ARN of a public parameter has no account.

    So say `get-parameters` (github-aws-runners/terraform-aws-github-runner#3363), a denial
    (prakhar1989/docker-curriculum#344) and Karpenter's policy (`AllowSSMReadActions`).
    """
    made = synthesize(image=NodeImage.from_ssm_parameter(parameter, login_user="ubuntu"))
    policy = made.part("AWS::IAM::ManagedPolicy", "ImageRole")["Properties"]
    actions = [statement["Action"] for statement in policy["PolicyDocument"]["Statement"]]
    assert sorted(str(action) for action in actions) == [
        "['kms:Decrypt', 'kms:GenerateDataKey']",
        "['logs:CreateLogStream', 'logs:PutLogEvents']",
        "sqs:SendMessage",
        "ssm:GetParameter",
    ]
    (reading,) = (s for s in policy["PolicyDocument"]["Statement"] if s["Action"] == "ssm:GetParameter")
    name = f":parameter{parameter}"
    start = ["arn:", {"Ref": "AWS::Partition"}, ":ssm:", {"Ref": "AWS::Region"}]
    assert reading["Resource"] == {"Fn::Join": ["", [*start, *([":", *account, name] if account else [f":{name}"])]]}


@pytest.mark.parametrize("release", ["", "a b", "a/b", "x" * 65, "$(reboot)"])
def test_a_release_that_is_no_word_is_refused(synthesize: Any, release: str) -> None:
    with pytest.raises(ValueError, match="image_release must be 1 to 64 letters"):
        synthesize(image_release=release)


def test_the_function_outlives_its_own_retries_and_cloudformation_outlives_the_function(synthesize: Any) -> None:
    made = synthesize()
    timeout = made.part("AWS::Lambda::Function", "ImageFunction")["Properties"]["Timeout"]
    # A minute of retries, the last call with its own (4 times 13 s), and the answer to CloudFormation (30 s).
    assert 60 + 4 * 13 + 30 <= timeout < int(made.only(PIN)["ServiceTimeout"])
