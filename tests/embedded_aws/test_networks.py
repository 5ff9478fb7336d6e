"""Parts of networks beyond those of our own VPC, as CreateSubnet and CreateNatGateway of the EC2 API describe them."""

import pytest

NETWORK = {
    "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}},
    "Subnet": {
        "Type": "AWS::EC2::Subnet",
        "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.0.1.0/24", "AvailabilityZoneId": "use1-az4"},
    },
}


def _deploy(deploy_template, **more):
    zone = {"Zone": {"Value": {"Fn::GetAtt": ["Subnet", "AvailabilityZone"]}}}
    return deploy_template({"Resources": {**NETWORK, **more}, "Outputs": zone}).end()


def test_a_subnet_lies_in_the_zone_of_an_id(deploy_template):
    """The zone that has an id differs between accounts; in the embedded AWS `use1-az4` is us-east-1d."""
    outcome = _deploy(deploy_template)
    assert (outcome["status"], outcome["outputs"]) == ("CREATE_COMPLETE", {"Zone": "us-east-1d"})


@pytest.mark.parametrize(("kind", "status"), [("private", "CREATE_COMPLETE"), ("public", "ROLLBACK_COMPLETE")])
def test_a_private_nat_gateway_needs_no_internet_gateway(deploy_template, kind, status):
    nat = {"SubnetId": {"Ref": "Subnet"}, "ConnectivityType": kind}
    resources = {"Nat": {"Type": "AWS::EC2::NatGateway", "Properties": nat}}
    if kind == "public":
        nat["AllocationId"] = {"Fn::GetAtt": ["Address", "AllocationId"]}
        resources["Address"] = {"Type": "AWS::EC2::EIP", "Properties": {"Domain": "vpc"}}
    assert _deploy(deploy_template, **resources)["status"] == status
