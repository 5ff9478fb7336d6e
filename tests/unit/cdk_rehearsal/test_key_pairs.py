"""Assumed contents of the rehearsed account."""

from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.key_pairs import assume_key_pairs


def _assume(resources):
    return assume_key_pairs([AssemblyStack("s", "123456789012", "us-east-1", {"Resources": resources}, ())])


def _launch_template(**data):
    return {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": data}}


def test_each_key_pair_that_a_template_names_gets_a_key():
    resources = {
        "Master": _launch_template(KeyName="mine"),
        "Workers": _launch_template(KeyName="mine"),
        "Others": _launch_template(),
        "Queue": {"Type": "AWS::SQS::Queue"},
    }
    (pair,) = _assume(resources).items()
    assert pair[0] == "mine"
    assert load_ssh_public_key(pair[1].encode())


def test_a_key_pair_of_the_template_itself_is_not_made_up():
    assert _assume({"Master": _launch_template(KeyName={"Ref": "KeyPair"})}) == {}


def test_instances_and_launch_configurations_name_key_pairs_too():
    kinds = ("AWS::EC2::Instance", "AWS::AutoScaling::LaunchConfiguration")
    resources = {kind.rpartition(":")[2]: {"Type": kind, "Properties": {"KeyName": kind}} for kind in kinds}
    assert _assume(resources).keys() == set(kinds)
