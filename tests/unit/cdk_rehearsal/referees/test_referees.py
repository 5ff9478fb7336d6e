import copy
from dataclasses import replace

import pytest
from cfnlint.rules import Rules

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.errors import RefusedError, UnsupportedError
from cdk_rehearsal.intrinsics import find_references
from cdk_rehearsal.referees import judge as judging
from cdk_rehearsal.referees import validation_engine
from cdk_rehearsal.referees.judge import JUDGES, judge_template, require_acceptance
from cdk_rehearsal.referees.order import find_usual_order
from cdk_rehearsal.referees.resolved_template import ResolvedTemplate, is_known, make_token, measure, show
from cdk_rehearsal.referees.service_models import CALLS, judge_calls
from tests.unit.cdk_rehearsal.referees.planted import PLANTED, VALID

_AMAZON_LINUX = "/aws/service/ami-amazon-linux-latest"


def judge(resources, **sections):
    """Return the findings of a template of some resources."""
    return [str(finding) for finding in judge_template({"Resources": resources, **sections}, "us-east-1", {})]


def plant(fault, mark):
    """Return the faulty resource, those that refer to it, and all that these need; their names end with a mark."""
    resources = copy.deepcopy(VALID)
    place = resources[fault.resource]["Properties"]
    *keys, last = fault.path.split(".")
    for key in keys:
        place = place[int(key)] if isinstance(place, list) else place[key]
    if not last:
        place.update(fault.value)
    elif fault.value is None:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = fault.value
    wanted = [fault.resource, *fault.beside, *(n for n in resources if fault.resource in _refer(resources[n]))]
    kept = set()
    while wanted:
        name = wanted.pop()
        if name in resources and name not in kept:
            kept.add(name)
            wanted += _refer(resources[name])
    return {f"{name}{mark}": _rename(resources[name], kept, mark) for name in kept}


def _refer(resource):
    return {name for name, _ in find_references(resource)}


def _rename(value, names, mark):
    if isinstance(value, list):
        return [_rename(entry, names, mark) for entry in value]
    if not isinstance(value, dict):
        return value
    if value.get("Ref") in names:
        return {"Ref": f"{value['Ref']}{mark}"}
    if "Fn::GetAtt" in value and value["Fn::GetAtt"][0] in names:
        return {"Fn::GetAtt": [f"{value['Fn::GetAtt'][0]}{mark}", *value["Fn::GetAtt"][1:]]}
    return {key: _rename(entry, names, mark) for key, entry in value.items()}


@pytest.fixture(scope="module")
def findings():
    """Return the findings of one template with every planted fault in resources of its own."""
    resources = {}
    for index, fault in enumerate(PLANTED):
        resources |= plant(fault, f"F{index}")
    return judge(resources)


def test_finds_nothing_in_resources_that_aws_takes():
    assert judge(VALID) == []


def test_loads_the_rules_of_cfn_lint_once(monkeypatch):
    queue = {"Queue": {"Type": "AWS::SQS::Queue"}}
    judge(queue)
    monkeypatch.setattr(Rules, "create_from_directory", lambda _: pytest.fail("they are loaded again"))
    assert judge(queue) == []


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.fault)
def test_finds_a_planted_fault_and_names_its_property(fault, findings):
    top = f"Resources.{fault.resource}F{PLANTED.index(fault)}.Properties"
    own = [finding.partition(":")[0] for finding in findings if finding.startswith((f"{top}.", f"{top}:"))]
    planted = f"{top}.{fault.path}"
    is_named = any(path.startswith(planted.rpartition(".")[0]) or planted.startswith(path) for path in own)
    assert is_named, f"{fault.source} is not held: {own}"


OWN = {
    "no rule of another package is about network cards, EFA or the addresses of interfaces": {
        "an interface type that does not exist",
        "an interface type in capitals",
        "EFA on a type without it",
        "a network card that the type does not have",
        "two interfaces at one place",
        "a public address with two interfaces",
        "security groups beside interfaces",
    },
    "no rule of another package looks into a launch template's volumes, metadata options and market": {
        "100,000 IOPS of gp3",
        "a throughput of 3,000 MiB/s of gp3",
        "a hop limit of 65",
        "spot instances in a reservation",
        "a capacity block without its reservation",
    },
    "other packages judge one resource where several decide": {
        "inline policies of 11,000 characters",
        "a key policy of a role that does not exist",
    },
    "no rule of another package has the limit": {"eight partitions"},
}
"""Reason for own rules -> the planted faults that they alone find."""


def test_own_rules_are_about_what_no_other_referee_finds(monkeypatch):
    monkeypatch.setattr("cdk_rehearsal.referees.judge.JUDGES", (judge_calls,))
    resources = {}
    for index, fault in enumerate(PLANTED):
        resources |= plant(fault, f"F{index}")
    found = {finding.split(".")[1].split(":")[0].split(" ")[0] for finding in judge(resources)}
    missed = {each.fault for index, each in enumerate(PLANTED) if f"{each.resource}F{index}" not in found}
    assert missed == set().union(*OWN.values())


def _mix(**market):
    data = {"ImageId": "ami-0123456789abcdef0", "InstanceType": "m5.large", **market}
    launched = {"LaunchTemplateId": {"Ref": "Nodes"}, "Version": {"Fn::GetAtt": ["Nodes", "LatestVersionNumber"]}}
    mix = {"LaunchTemplate": {"LaunchTemplateSpecification": launched}}
    sizes = {"MinSize": "0", "MaxSize": "1", "VPCZoneIdentifier": ["subnet-0123456789abcdef0"]}
    return {
        "Nodes": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": data}},
        "Group": {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": {**sizes, "MixedInstancesPolicy": mix}},
    }


def test_a_mixed_group_takes_no_template_that_asks_for_spot():
    """EC2 Auto Scaling user guide, "Auto Scaling groups with multiple instance types and purchase options"."""
    assert judge(_mix()) == []
    (found,) = judge(_mix(InstanceMarketOptions={"MarketType": "spot"}))
    assert "must use a launch template without InstanceMarketOptions, got Nodes" in found


OVER = {
    "AWS::Backup::BackupSelection": {
        "BackupPlanId": "plan",
        "BackupSelection": {"SelectionName": "a:b", "IamRoleArn": "arn:aws:iam::123456789012:role/r"},
    },
    "AWS::Budgets::Budget": {"Budget": {"BudgetType": "COST", "TimeUnit": "MONTHLY", "BudgetName": "b" * 101}},
    "AWS::CloudWatch::Alarm": {
        "EvaluationPeriods": 1,
        "ComparisonOperator": "GreaterThanThreshold",
        "EvaluationWindow": {"WallClockWindow": {"Timezone": "z" * 51}},
    },
    "AWS::DynamoDB::Table": {
        **VALID["Table"]["Properties"],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": "by-cluster",
                "KeySchema": [{"AttributeName": "cluster", "KeyType": "RANG"}],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    },
    "AWS::EKS::Addon": {"AddonName": "vpc-cni", "ClusterName": "c" * 101},
    "AWS::EKS::Cluster": {**VALID["Kubernetes"]["Properties"], "Name": "my cluster"},
    "AWS::EMR::Cluster": {**VALID["Hadoop"]["Properties"], "CustomAmiId": "a" * 257},
    "AWS::Events::Rule": {"EventPattern": {"source": ["s" * 4097]}},
    "AWS::FSx::FileSystem": {**VALID["Lustre"]["Properties"], "FileSystemTypeVersion": "v2"},
    "AWS::IAM::InstanceProfile": {"InstanceProfileName": "caf\u00e9", "Roles": ["r"]},
    "AWS::IAM::Policy": {**VALID["Policy"]["Properties"], "PolicyName": "caf\u00e9", "Roles": ["r"]},
    "AWS::Lambda::EventSourceMapping": {
        "FunctionName": "f",
        "SourceAccessConfigurations": [{"Type": "BASIC_AUTH", "URI": "caf\u00e9"}],
    },
    "AWS::Lambda::Function": {
        "Role": "arn:aws:iam::123456789012:role/f",
        "Code": {"ZipFile": "0"},
        "Handler": "index.handler",
        "Runtime": "python3.13",
        "DeadLetterConfig": {"TargetArn": "queue"},
    },
}
"""Resource type -> properties that a service's model alone refuses."""


def test_the_service_models_judge_the_types_of_which_others_lack_a_limit(monkeypatch):
    assert set(OVER) == CALLS.keys() - {"AWS::IAM::Role"}
    resources = {f"Made{n}": {"Type": kind, "Properties": each} for n, (kind, each) in enumerate(OVER.items())}
    limits = {finding.path for finding in judge_calls(ResolvedTemplate({"Resources": resources}, "us-east-1"))}
    assert {path.split(".")[1] for path in limits} == set(resources)
    monkeypatch.setattr("cdk_rehearsal.referees.judge.JUDGES", ())
    found = {each.path for each in judge_template({"Resources": resources}, "us-east-1", {})}
    assert limits & found == set()


def test_two_roles_whose_names_iam_refuses_are_both_refused():
    """cdk-preflight's rule about names fails on two, and AWS's engine with it; the service model does not."""
    roles = {
        f"Role{n}": {"Type": "AWS::IAM::Role", "Properties": {**VALID["Role"]["Properties"], "RoleName": name}}
        for n, name in enumerate(("caf\u00e9", "n\u00f8de"))
    }
    assert [each.partition(":")[0] for each in judge(roles)] == [
        "Resources.Role0.Properties.RoleName",
        "Resources.Role1.Properties.RoleName",
    ]


def test_subnets_that_overlap_are_refused():
    """VPC user guide, "Subnet CIDR blocks"; the engine and cfn-lint name either of the two."""
    wide = {"Type": "AWS::EC2::Subnet", "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.0.0.0/23"}}
    found = judge({"Vpc": VALID["Vpc"], "Subnet": wide, "Other": VALID["Other"]})
    assert found
    assert all("overlap" in each for each in found)


def test_finds_nothing_in_the_resources_around_a_fault(findings):
    faulty = {f"{name}F{index}" for index, fault in enumerate(PLANTED) for name in (fault.resource, *fault.beside)}
    foreign = [finding for finding in findings if finding.split(".")[1].rstrip(":") not in faulty]
    assert foreign == []


def test_judges_the_values_that_parameters_conditions_and_mappings_give():
    queue = {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": {"Ref": "Seconds"}}}
    hop = {"Fn::FindInMap": ["Hops", {"Ref": "AWS::Region"}, "limit"]}
    data = {"LaunchTemplateData": {"MetadataOptions": {"HttpPutResponseHopLimit": hop}}}
    chosen = {"Type": "AWS::EC2::PlacementGroup", "Properties": {"PartitionCount": {"Fn::If": ["Many", 8, 2]}}}
    template = {
        "Parameters": {"Seconds": {"Type": "Number", "Default": "30"}, "Size": {"Type": "String", "Default": "large"}},
        "Conditions": {"Many": {"Fn::Equals": [{"Ref": "Size"}, "huge"]}},
        "Mappings": {"Hops": {"us-east-1": {"limit": 99}}},
        "Resources": {
            "Queue": queue,
            "Nodes": {"Type": "AWS::EC2::LaunchTemplate", "Properties": data},
            "Group": chosen | {"Properties": chosen["Properties"] | {"Strategy": "partition"}},
            "Left": {"Type": "AWS::SQS::Queue", "Condition": "Many", "Properties": {"DelaySeconds": 1}},
        },
    }
    paths = [finding.path for finding in judge_template(template, "us-east-1", {})]
    assert paths == ["Resources.Nodes.Properties.LaunchTemplateData.MetadataOptions.HttpPutResponseHopLimit"]
    paths = [finding.path for finding in judge_template(template, "us-east-1", {"Size": "huge"})]
    assert paths[0] == "Resources.Group.Properties.PartitionCount"


@pytest.mark.parametrize(
    ("name", "is_found"), [("al2023-ami-kernel-default-x86_64", False), ("al2023-ami-kernel-default-x86", True)]
)
def test_holds_public_parameters_of_amazon_linux_against_the_list(name, *, is_found):
    image = {"Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", "Default": f"{_AMAZON_LINUX}/{name}"}
    used = {"Image": {"Value": {"Ref": "Image"}}}
    found = judge(VALID, Parameters={"Image": image}, Outputs=used)
    assert bool(found) == is_found
    assert all(finding.startswith("Parameters.Image.Default: must be one of the 53") for finding in found)


def test_a_token_is_no_value_and_counts_as_one_character():
    resources = {"Role": {"Type": "AWS::IAM::Role", "Properties": {"RoleName": {"Fn::Sub": "${Other}-role"}}}}
    resolved = ResolvedTemplate({"Resources": resources}, "us-east-1")
    ((_, properties),) = resolved.list_type("AWS::IAM::Role")
    assert properties == {"RoleName": f"{make_token('Other')}-role"}
    assert not is_known(properties)
    assert measure(properties["RoleName"]) == len("?-role")
    assert show(properties["RoleName"]) == "${Other}-role"


@pytest.mark.parametrize("value", [{"Fn::GetAtt": ["Made", "Value"]}, "text", 7, [], [{}], {"Fn::If": ["No", 1, 2]}])
def test_the_own_rules_read_any_shape(value):
    """cfn-lint reports malformed values; values known only at deployment may stand anywhere."""
    for name, resource in VALID.items():
        for path in _list_paths(resource.get("Properties", {})):
            changed = copy.deepcopy(VALID)
            place = changed[name]["Properties"]
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            resolved = ResolvedTemplate({"Resources": changed}, "us-east-1")
            assert all(finding.path for judge_part in JUDGES for finding in judge_part(resolved))


def test_a_malformed_intrinsic_is_a_finding_among_others():
    late = {"Type": "AWS::SQS::Queue", "Properties": {"DelaySeconds": 901, "QueueName": {"Fn::GetAtt": 7}}}
    found = judge(VALID | {"Late": late, "Caller": VALID["Function"] | {"Properties": {"Role": {"Fn::GetAtt": 7}}}})
    assert any(finding.startswith("Resources.Late.Properties.DelaySeconds: ") for finding in found)
    assert any(finding.startswith("Resources.Caller.Properties.Role.Fn::GetAtt: ") for finding in found)


def _list_paths(value, *path):
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [
        found
        for key, entry in entries
        if not str(key).startswith(("Fn::", "Ref"))
        for found in _list_paths(entry, *path, key)
    ]
    return [path, *below] if path else below


@pytest.mark.parametrize(
    ("statement", "more"),
    [
        ({"Action": "kms:P*"}, {}),
        ({"NotAction": "kms:Decrypt"}, {}),
        ({"Action": "kms:Decrypt"}, {"BypassPolicyLockoutSafetyCheck": True}),
    ],
)
def test_takes_a_key_policy_that_kms_takes(statement, more):
    policy = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": "*", "Resource": "*"} | statement],
    }
    assert judge({"Key": {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": policy, **more}}}) == []


@pytest.mark.parametrize(("rate", "is_refused"), [(80000, False), (80001, True)])
def test_holds_the_iops_of_gp3_against_todays_limit(rate, *, is_refused):
    nodes = copy.deepcopy(VALID["Nodes"])
    nodes["Properties"]["LaunchTemplateData"]["BlockDeviceMappings"][0]["Ebs"]["Iops"] = rate
    assert bool(judge(VALID | {"Nodes": nodes})) == is_refused


def test_takes_a_block_with_host_bits_as_ec2_does():
    subnet = copy.deepcopy(VALID["Subnet"])
    address, _, prefix = subnet["Properties"]["CidrBlock"].partition("/")
    subnet["Properties"]["CidrBlock"] = f"{address.rpartition('.')[0]}.9/{prefix}"
    assert judge(VALID | {"Subnet": subnet}) == []


BASIC = {name: VALID[name] for name in ("Vpc", "Subnet")}
LATE = {name: {"Type": "AWS::SQS::Queue", "Properties": {"DelaySeconds": 901}} for name in ("Late", "Later")}
RACE = {
    "Gateway": {"Type": "AWS::EC2::InternetGateway"},
    "Attachment": {
        "Type": "AWS::EC2::VPCGatewayAttachment",
        "Properties": {"VpcId": {"Ref": "Vpc"}, "InternetGatewayId": {"Ref": "Gateway"}},
    },
    "Table": {"Type": "AWS::EC2::RouteTable", "Properties": {"VpcId": {"Ref": "Vpc"}}},
    "Route": {
        "Type": "AWS::EC2::Route",
        "Properties": {
            "RouteTableId": {"Ref": "Table"},
            "DestinationCidrBlock": "0.0.0.0/0",
            "GatewayId": {"Ref": "Gateway"},
        },
    },
}


def make_stack(resources, region="us-east-1", name="s"):
    return AssemblyStack(name, "123456789012", region, {"Resources": resources}, ())


def test_refuses_with_every_finding_at_once(tmp_path):
    for _ in range(2):  # a refusal is not remembered
        with pytest.raises(RefusedError) as error:
            require_acceptance([make_stack(BASIC | LATE)], tmp_path)
        assert [finding.partition(":")[0] for finding in error.value.findings] == [
            "Resources.Late.Properties.DelaySeconds",
            "Resources.Later.Properties.DelaySeconds",
        ]
    assert error.value.exit_status == 1


def test_what_is_refused_and_what_is_not_implemented_are_listed_together(tmp_path):
    alien = {"Alien": {"Type": "AWS::ECR::Repository"}}
    with pytest.raises(UnsupportedError, match=r"does not implement 1 thing .*\n  Alien: type AWS::ECR::R") as error:
        require_acceptance([make_stack(BASIC | LATE | alien), make_stack(LATE, name="other")], tmp_path)
    assert "AWS would refuse 4 properties of this template:\n  s: Resources.Late.Properties" in str(error.value)
    assert error.value.exit_status == 2


def test_a_race_is_no_refusal_and_names_all_that_is_missed_and_both_remedies(tmp_path, capsys):
    """Some orders of creation alone fail (CloudFormation reference, "DependsOn attribute")."""
    paths = {"Route": "web/Vpc/PublicSubnet1/DefaultRoute", "Attachment": "web/Vpc/VPCGW", "Again": "web/Vpc/VPCGW2"}
    stack = replace(make_stack(BASIC | RACE | {"Again": RACE["Attachment"]}), constructs=paths)
    second_gateway = {"pf-ec2-vpc-single-igw": "it gives a second race"}
    for _ in range(2):  # a race is said each time
        (said,) = require_acceptance([stack], tmp_path, accept=second_gateway).races
        assert said.startswith(
            "Resources.Route.DependsOn (web/Vpc/PublicSubnet1/DefaultRoute): must wait for Attachment, Again, because "
        )
        assert "; add them to its DependsOn, or let web/Vpc/PublicSubnet1 call node.add_dependency with web/Vpc" in said
        assert capsys.readouterr().err == f"may fail, depending on the order of creation: {said}\n"
    assert find_usual_order(stack.template, "us-east-1") == {"Route": {"Attachment", "Again"}}


def test_the_user_accepts_findings_of_a_rule_with_a_reason(tmp_path):
    stack = make_stack(BASIC | LATE | RACE)
    accepted = require_acceptance([stack], tmp_path, accept={"E3034": "AWS takes it", "order": "never failed"})
    assert accepted.races == ()
    assert [each.rpartition(": ")[2] for each in accepted.accepted] == ["AWS takes it", "AWS takes it", "never failed"]
    with pytest.raises(RefusedError, match="AWS would refuse 2 properties"):
        require_acceptance([stack], tmp_path, accept={"order": "never failed"})


def test_remembers_an_accepted_template_until_it_or_its_region_or_a_parameter_changes(monkeypatch, tmp_path, capsys):
    judged = []
    monkeypatch.setattr("cdk_rehearsal.referees.judge.judge_template", lambda *given: judged.append(given) or ())

    def accept(resources, region, **parameters):
        require_acceptance([make_stack(resources, region)], tmp_path, parameters)

    for _ in range(2):
        accept(BASIC, "us-east-1")
        accept({}, "us-east-1")
        accept({}, "eu-west-1")
        accept({}, "eu-west-1", Size="huge")
    assert len(judged) == 4
    assert capsys.readouterr().err.count("without a finding, as before") == 4


@pytest.mark.parametrize(
    ("zone", "is_taken"),
    [("us-west-2-lax-1a", True), ("us-west-2a", False), ({"Fn::Select": [0, {"Fn::GetAZs": ""}]}, False)],
)
def test_a_load_balancer_takes_one_subnet_of_a_local_zone_alone(zone, *, is_taken):
    """Elastic Load Balancing API, CreateLoadBalancer: subnets of two zones, or of one or more Local Zones."""
    subnet = {**VALID["Subnet"], "Properties": {**VALID["Subnet"]["Properties"], "AvailabilityZone": zone}}
    balancer = {"Type": "AWS::ElasticLoadBalancingV2::LoadBalancer", "Properties": {"Subnets": [{"Ref": "Subnet"}]}}
    resources = {"Vpc": VALID["Vpc"], "Subnet": subnet, "Balancer": balancer}
    findings = judge_template({"Resources": resources}, "us-west-2", {})
    assert [each.name for each in findings] == ([] if is_taken else ["E3680"])


def test_cfn_lints_own_directives_are_honoured():
    """cfn-lint's README, "Metadata": a template or a resource names checks to ignore."""
    ignored = {"Metadata": {"cfn-lint": {"config": {"ignore_checks": ["E3034"]}}}}
    assert judge_template({"Resources": {"Late": LATE["Late"] | ignored}}, "us-east-1", {}) == ()
    assert judge_template({"Resources": LATE} | ignored, "us-east-1", {}) == ()
    assert (
        len(judge_template({"Resources": {"Late": LATE["Late"] | ignored, "Later": LATE["Later"]}}, "us-east-1", {}))
        == 1
    )


def test_the_engine_ends_after_the_judgement(tmp_path, monkeypatch):
    """It would take 450 MB while the nodes run."""
    monkeypatch.setattr(judging, "end_engine", validation_engine.end_engine)
    engine = validation_engine._start()
    require_acceptance([make_stack(BASIC)], tmp_path)
    assert engine.returncode == 0
