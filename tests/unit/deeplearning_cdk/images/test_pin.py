"""The image stays that of the stack's creation: CloudFormation asks for it again only when a property changes."""

import pytest

from deeplearning_cdk import NodeImage, Software
from tests.unit.deeplearning_cdk.test_public_api import VARIANTS

PIN = "Custom::PinnedImage"
UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"


TEAM = "/team/images/training"
OTHER = {
    "software.image": NodeImage.from_ssm_parameter(TEAM, login_user="ubuntu"),
    "software.image_release": "2026-11-22",
}
# That both groups start from the pin, or from an id that is given, is asked in test_node_image.py.


def test_the_pin_changes_with_the_image_and_the_release_alone(synthesize):
    base = synthesize().only(PIN)
    assert (base["Parameter"], base["Release"]) == (UBUNTU, "1")
    assert synthesize(**VARIANTS["guarded-spending"]).only(PIN) == base
    other = synthesize(**OTHER).only(PIN)
    assert {name for name, value in other.items() if value != base[name]} == {"Parameter", "Release"}
    assert (other["Parameter"], other["Release"]) == (TEAM, "2026-11-22")


@pytest.mark.parametrize(
    ("props", "parameter", "account"), [({}, UBUNTU, []), (OTHER, TEAM, [{"Ref": "AWS::AccountId"}])]
)
def test_the_function_may_read_this_one_parameter_and_write_its_log_and_dead_letters(
    synthesize, props, parameter, account
):
    """
    The ARN of a public parameter has no account.

    So say `get-parameters` (github-aws-runners/terraform-aws-github-runner#3363), a denial
    (prakhar1989/docker-curriculum#344) and Karpenter's policy (`AllowSSMReadActions`).
    """
    made = synthesize(**props)
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
def test_a_release_that_is_no_word_is_refused(release):
    with pytest.raises(ValueError, match=r"software\.image_release must be 1 to 64 letters"):
        Software(image_release=release)


def test_the_function_outlives_its_own_retries_and_cloudformation_outlives_the_function(synthesize):
    made = synthesize()
    timeout = made.part("AWS::Lambda::Function", "ImageFunction")["Properties"]["Timeout"]
    # A minute of retries, the last call with its own (4 times 13 s), and the answer to CloudFormation (30 s).
    assert 60 + 4 * 13 + 30 <= timeout < int(made.only(PIN)["ServiceTimeout"])
