"""
`deeplearning-cdk preflight` asks an embedded AWS over HTTP, as a role whose policies decide.

Nothing is launched, so these are no rehearsals: the stack of the account has roles alone.
"""

import copy
import json

import pytest

from deeplearning_cli.account.launches import DRY_RUN_RIGHT
from deeplearning_cli.main import main
from deeplearning_cli.preflight import ACTIONS
from deeplearning_contract.names import CANDIDATE_TAG

ZONE, KEY, BLOCK = "us-east-1a", "mine", "cr-0123456789abcdef0"
P_QUOTA = "Running On-Demand P instances"
RESERVATION = {"id": BLOCK, "zone": ZONE, "instance_type": "c5.large", "instances": 1}
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1UMwhcGqmyDjZ2nVVpgqvYGqeXUOTAC5hbmJIm8Q9m"
RIGHTS = (*ACTIONS, DRY_RUN_RIGHT)
ADVICE = {
    *(DRY_RUN_RIGHT, "cloudformation:DescribeStacks", "ec2:DescribeCapacityBlockOfferings"),
    *("ec2:GetCapacityManagerSupportabilityScores", "ec2:GetSpotPlacementScores"),
}
"""Rights of what no deployment depends on."""
READERS = {"Reader": RIGHTS} | {
    f"Without{number}": [each for each in RIGHTS if each != denied] for number, denied in enumerate(RIGHTS)
}
"""Logical id of a role -> what its policy allows: all rights of the command, or all but one."""
BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"
SQS = "com.amazonaws.us-east-1.sqs"
SUPPORTABILITY = "supportability of 2 p4d.24xlarge in us-east-1a"


def make_role(actions):
    """Return a role that a policy allows some actions."""
    statements = [{"Effect": "Allow", "Action": list(actions), "Resource": "*"}]
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}}
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]},
            "Policies": [{"PolicyName": "reads", "PolicyDocument": {"Version": "2012-10-17", "Statement": statements}}],
        },
    }


@pytest.fixture
def examine(monkeypatch, capsys):
    """Return the function that runs the command, in an account as one of its roles, and returns what it finds."""

    def run_command(cloud, assembly, reader):
        arn = cloud.client("iam").get_role(RoleName=cloud.physical_id(reader))["Role"]["Arn"]
        minted = cloud.command("mint", role=arn)
        monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.endpoint)
        for name in ("access_key_id", "secret_access_key", "session_token"):
            monkeypatch.setenv(f"AWS_{name.upper()}", minted[name])
        status = main(["preflight", str(assembly), "--region", "us-east-1", "--json"])
        found = {each.pop("subject"): each for each in json.loads(capsys.readouterr().out)}
        return status, found, {subject: each for subject, each in found.items() if each["state"] != "ok"}

    return run_command


@pytest.fixture
def run(deploy_template, sample_template, assemble, tmp_path, examine):
    """Return the function that opens an account; it returns the account, and how to run the command on the sample."""

    def open_account(**options):
        resources = {name: make_role(actions) for name, actions in READERS.items()}
        settings = {"key_pairs": {KEY: PUBLIC_KEY}, "reservations": [RESERVATION], "quotas": {P_QUOTA: 192}}
        cloud = deploy_template({"Resources": resources}, **settings | options)
        assert cloud.end()["status"] == "CREATE_COMPLETE"
        image = cloud.client("ec2").register_image(Name="image")["ImageId"]
        for name, value in {"/mine/image": image, BOOTSTRAP: "6"}.items():
            cloud.client("ssm").put_parameter(Name=name, Value=value, Type="String")
        cloud.site = make_site(cloud)
        assembly = assemble(tmp_path / "asked", ask_for(sample_template, image, cloud.site))
        describe_stack(assembly)
        return cloud, lambda reader="Reader": examine(cloud, assembly, reader)

    return open_account


def make_site(cloud):
    """Create a VPC with a small subnet, and a file system with a mount target in it; return their ids."""
    ec2, efs = cloud.client("ec2"), cloud.client("efs")
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/24")["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    place = {"VpcId": vpc, "CidrBlock": "10.7.0.0/28", "AvailabilityZone": ZONE}
    subnet = ec2.create_subnet(**place)["Subnet"]["SubnetId"]
    system = efs.create_file_system(CreationToken="mine")["FileSystemId"]
    efs.create_mount_target(FileSystemId=system, SubnetId=subnet)
    return {"vpc": vpc, "subnet": subnet, "system": system}


def describe_stack(assembly, name="asked"):
    """Name the stack of an assembly, and let it require version 6 of the bootstrap stack, as the CDK's stacks do."""
    manifest = json.loads((assembly / "manifest.json").read_text())
    required = {"requiresBootstrapStackVersion": 6, "bootstrapStackVersionSsmParameter": BOOTSTRAP}
    manifest["artifacts"]["sample"]["properties"] |= required | {"stackName": name}
    (assembly / "manifest.json").write_text(json.dumps(manifest))


def ask_for(template, image, site):
    """
    Let the sample ask for a master in a block and two workers in the region's first zone.

    The workers are on demand, or spot and in a VPC of the account, with an endpoint there, and mount its file system.
    """
    resources = template["Resources"]
    resources["Subnet"]["Properties"]["AvailabilityZone"] = {"Fn::Select": [0, {"Fn::GetAZs": ""}]}
    target = {"CapacityReservationTarget": {"CapacityReservationId": BLOCK}}
    resources["MasterTemplate"]["Properties"]["LaunchTemplateData"] |= {
        "ImageId": image,
        "InstanceMarketOptions": {"MarketType": "capacity-block"},
        "CapacityReservationSpecification": target,
    }
    resources["WorkerTemplate"]["Properties"]["LaunchTemplateData"] |= {
        "ImageId": "resolve:ssm:/mine/image",
        "InstanceType": "p4d.24xlarge",
        "KeyName": KEY,
    }
    resources["SpotTemplate"] = copy.deepcopy(resources["WorkerTemplate"])
    resources["SpotTemplate"]["Properties"]["LaunchTemplateData"]["InstanceMarketOptions"] = {"MarketType": "spot"}
    resources["SpotGroup"] = copy.deepcopy(resources["WorkerGroup"])
    properties = resources["SpotGroup"]["Properties"]
    properties["LaunchTemplate"]["LaunchTemplateId"] = {"Ref": "SpotTemplate"}
    properties["VPCZoneIdentifier"] = [site["subnet"]]
    resources["SpotSecurity"] = {"Type": "AWS::EC2::SecurityGroup", "Properties": {"VpcId": site["vpc"]}}
    data = resources["SpotTemplate"]["Properties"]["LaunchTemplateData"]
    data["SecurityGroupIds"] = [{"Fn::GetAtt": ["SpotSecurity", "GroupId"]}]
    data["UserData"] = f'{{"file_system":{{"kind":"efs","source":"{site["system"]}:/"}}}}'
    endpoint = {"VpcEndpointType": "Interface", "PrivateDnsEnabled": True, "SubnetIds": [site["subnet"]]}
    endpoint |= {"VpcId": site["vpc"], "ServiceName": SQS}
    resources["Endpoint"] = {"Type": "AWS::EC2::VPCEndpoint", "Properties": endpoint}
    properties["Tags"].append({"Key": CANDIDATE_TAG, "Value": "us-east-1a-p4d.24xlarge-spot-1f3a"})
    return template


def test_preflight_well_finds_nothing_wrong_and_uses_each_of_its_rights_and_no_other(run):
    cloud, examine = run()
    status, found, wrong = examine()
    assert (status, list(wrong)) == (0, [SUPPORTABILITY]), wrong
    assert "Unified Operations plan" in wrong[SUPPORTABILITY]["remedy"]
    assert set(found) >= {
        *("dry run of 2 p4d.24xlarge in us-east-1a", "dry run of 2 p4d.24xlarge in us-east-1a, spot"),
        *("c5.large in us-east-1a", "p4d.24xlarge in us-east-1a", f"quota {P_QUOTA}", f"reservation {BLOCK}"),
        *("stack asked", "image /mine/image", f"key pair {KEY}", f"bootstrap {BOOTSTRAP}"),
        *(f"subnet {cloud.site['subnet']}", f"file system {cloud.site['system']}"),
        *(f"DNS of {cloud.site['vpc']}", f"private DNS of {cloud.site['vpc']}"),
        "Capacity Block of 2 p4d.24xlarge",
    }
    assert found[f"quota {P_QUOTA}"]["detail"] == "2 p4d.24xlarge need 192 vCPUs, the quota is 192, 0 are in use"
    score = found["spot placement score of 2 p4d.24xlarge in us-east-1a, spot"]["detail"]
    assert score == "1 of 10, which is always low for fewer than three types"
    assert set(cloud.command("count_actions", kind="other")) == set(RIGHTS)
    assert cloud.client("ec2").describe_instances()["Reservations"] == []


def test_preflight_says_that_the_stack_is_deployed_already(run, tmp_path):
    _, examine = run()
    describe_stack(tmp_path / "asked", name="sample")
    status, _, unknown = examine()
    assert (status, list(unknown)) == (0, ["stack sample", SUPPORTABILITY])
    assert unknown["stack sample"]["detail"].startswith("it is deployed already, CREATE_COMPLETE: its own vCPUs")


def test_preflight_quota_zero_names_the_quota_and_how_much_to_request(run):
    status, _, wrong = run(quotas={P_QUOTA: 0})[1]()
    assert (status, [*wrong]) == (1, [f"quota {P_QUOTA}", SUPPORTABILITY])
    assert wrong[f"quota {P_QUOTA}"]["state"] == "wrong"
    assert wrong[f"quota {P_QUOTA}"]["remedy"].startswith("request at least 192 in Service Quotas")


def test_preflight_zone_without_type_names_the_zones_that_have_it(run):
    status, _, wrong = run(missing_types={ZONE: ["p4d.24xlarge"]})[1]()
    assert (status, [*wrong]) == (1, ["p4d.24xlarge in us-east-1a", SUPPORTABILITY])
    found = wrong["p4d.24xlarge in us-east-1a"]
    assert (found["state"], ZONE in found["remedy"]) == ("wrong", False)
    assert found["remedy"].startswith("set network.availability_zone to one of us-east-1")


def test_preflight_denied_says_what_it_cannot_know_and_names_the_missing_right(run):
    _, examine = run()
    for reader, denied in zip([*READERS][1:], RIGHTS, strict=True):
        status, _, unknown = examine(reader)
        unknown.pop(SUPPORTABILITY if denied != "ec2:GetCapacityManagerSupportabilityScores" else "", None)
        assert status == (0 if denied in ADVICE else 2), unknown
        assert {each["state"] for each in unknown.values()} == {"unknown"}, denied
        assert all(denied in each["remedy"] for each in unknown.values()), unknown


def test_a_block_that_begins_later_is_wrong_until_it_has_begun(run):
    cloud, examine = run(reservations=[{**RESERVATION, "begins": 3600.0}])
    status, _, wrong = examine()
    assert (status, [*wrong]) == (1, [f"reservation {BLOCK}", SUPPORTABILITY])
    assert wrong[f"reservation {BLOCK}"]["remedy"] == "deploy once its state is active"
    cloud.command("begin_reservation", name=BLOCK)
    assert examine()[0] == 0


def test_preflight_names_what_an_existing_vpc_and_file_system_refuse(run):
    cloud, examine = run()
    site, ec2 = cloud.site, cloud.client("ec2")
    ec2.modify_vpc_attribute(VpcId=site["vpc"], EnableDnsHostnames={"Value": False})
    made = {"VpcEndpointType": "Interface", "PrivateDnsEnabled": True, "VpcId": site["vpc"], "ServiceName": SQS}
    endpoint = ec2.create_vpc_endpoint(**made)["VpcEndpoint"]["VpcEndpointId"]
    for _ in range(9):
        ec2.create_network_interface(SubnetId=site["subnet"])
    efs = cloud.client("efs")
    (target,) = efs.describe_mount_targets(FileSystemId=site["system"])["MountTargets"]
    efs.delete_mount_target(MountTargetId=target["MountTargetId"])
    cloud.client("ssm").put_parameter(Name=BOOTSTRAP, Value="5", Type="String", Overwrite=True)
    status, _, wrong = examine()
    wrong.pop(SUPPORTABILITY)
    assert (status, {each["state"] for each in wrong.values()}) == (1, {"wrong"})
    taken = "the stack takes 3, 1 of them for endpoints and mount targets"
    assert {subject: each["detail"] for subject, each in wrong.items()} == {
        f"subnet {site['subnet']}": f"2 addresses are free, {taken}",
        f"DNS of {site['vpc']}": "enableDnsHostnames must be on, got off",
        f"private DNS of {site['vpc']}": f"a service has one private name in a VPC: {endpoint} has that of {SQS}",
        f"file system {site['system']}": "its mount targets must be available where nodes are, got us-east-1a missing",
        f"bootstrap {BOOTSTRAP}": "the stack requires version 6, the region has 5",
    }
