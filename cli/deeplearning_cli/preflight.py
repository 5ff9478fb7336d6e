"""`deeplearning-cdk preflight`: asks the account whether a stack's nodes can launch, before anything is deployed."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.manifest import StackArtifact, find_stacks
from deeplearning_cli.account.answers import read_answers
from deeplearning_cli.account.blocks import judge_offers, list_blocks, read_offers
from deeplearning_cli.account.bootstrap import judge_bootstraps, list_bootstraps, read_versions
from deeplearning_cli.account.demand import list_demands
from deeplearning_cli.account.deployed import judge_status, read_status
from deeplearning_cli.account.endpoints import judge_vpcs, list_vpcs, read_vpcs
from deeplearning_cli.account.finding import Finding
from deeplearning_cli.account.judgement import judge
from deeplearning_cli.account.launch_answers import read_launches
from deeplearning_cli.account.launches import DRY_RUN_RIGHT, judge_launches
from deeplearning_cli.account.mount_targets import judge_file_systems, list_file_systems, read_mount_targets
from deeplearning_cli.account.quotas import list_names
from deeplearning_cli.account.subnets import count_interfaces, judge_subnets
from deeplearning_cli.arguments import Commands
from deeplearning_cli.cloud_access import open_cloud
from deeplearning_cli.errors import UNAVAILABLE, UnavailableError, report_error
from deeplearning_rehearsal.template import read_cluster

WRONG = 1
ACTIONS = (
    "cloudformation:DescribeStacks",
    "cloudwatch:GetMetricStatistics",
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeCapacityBlockOfferings",
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeKeyPairs",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcAttribute",
    "ec2:DescribeVpcEndpoints",
    "ec2:GetCapacityManagerSupportabilityScores",
    "ec2:GetSpotPlacementScores",
    "elasticfilesystem:DescribeMountTargets",
    "servicequotas:ListAWSDefaultServiceQuotas",
    "servicequotas:ListServiceQuotas",
    "ssm:GetParameter",
)
"""Rights that the command uses, all of them to read; a dry run needs `DRY_RUN_RIGHT` too."""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "preflight",
        help="ask the account whether the nodes of a stack can launch, before it is deployed",
        description="Compare what a synthesized cluster on EC2 or EKS asks for with the account: quotas and their use, "
        "instance types in the zones, reservations and Capacity Blocks, images and key pairs, subnets, DNS and file "
        "systems that exist, the CDK's bootstrap stack, dry runs of launches, EC2's scores, and offers of Capacity "
        "Blocks. Changes nothing. Whether EC2 has capacity, only a launch shows.",
        epilog="exit status: 0 every line is ok, though dry runs, scores, offers and the stack may be unknown, 1 a "
        "line is wrong, 2 none is wrong and another is unknown, or the account could not be asked, 130 interrupted; "
        f"example: cdk synth --quiet && deeplearning-cdk preflight; rights: {', '.join(ACTIONS)}; a dry run needs "
        f"{DRY_RUN_RIGHT}, which allows real launches too: without it, its lines are unknown",
    )
    add = parser.add_argument
    add("assembly", nargs="?", default="cdk.out", help="the cloud assembly of `cdk synth` (default: %(default)s)")
    add("--stack", metavar="NAME", help="which stack of the assembly (default: the only one that is a cluster)")
    add("--region", metavar="REGION", help="AWS region (default: the stack's, AWS_REGION, or the profile's)")
    add("--profile", metavar="NAME", help="profile of the AWS CLI (default: AWS_PROFILE, or the default one)")
    add(
        "--rehearsal",
        nargs="?",
        const="build/rehearsal",
        metavar="DIR",
        help="ask a rehearsal kept by --keep, never AWS (root; default DIR: build/rehearsal)",
    )
    add("--json", action="store_true", help="print a JSON list with an entry for each line")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each thing that the nodes need; return 0, 1 or 2 as the help says."""
    try:
        findings = _examine(arguments)
    except (AssemblyError, UnavailableError) as error:
        return report_error(error, as_json=arguments.json)
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print("\n".join(render_findings(findings)))
    states = {finding.state for finding in findings if not (finding.is_advice and finding.state == "unknown")}
    return WRONG if "wrong" in states else UNAVAILABLE if "unknown" in states else 0


def render_findings(findings: Sequence[Finding]) -> list[str]:
    """Return the findings as lines."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<8} {finding.subject}: {finding.detail}")
        lines += [f"{'':<8} {finding.remedy}"] if finding.remedy else []
    return lines


def _examine(arguments: argparse.Namespace) -> list[Finding]:
    assembly = Path(arguments.assembly).resolve()
    stack = read_cluster(assembly, arguments.stack)
    demands = list_demands(stack.templates)
    if not demands:
        raise UnavailableError(
            f"stack {stack.name} must have groups of nodes, got none; the Service Quotas console has the quotas of "
            "SageMaker and EMR"
        )
    artifacts = find_stacks(assembly, [stack.path])
    if arguments.rehearsal is None:
        arguments.region = arguments.region or _find_region(artifacts[-1])
    access = open_cloud(arguments)
    ec2 = access.clients("ec2")
    names = {name for demand in demands for name in list_names(demand.instance_type, demand.market)}
    answers = read_answers(access.clients, demands, sorted(names))
    bootstraps = list_bootstraps([each.entry["properties"] for each in artifacts])
    vpcs = list_vpcs(stack.templates, demands, access.region)
    file_systems = list_file_systems(stack.templates)
    blocks = list_blocks(demands, answers)
    name = artifacts[-1].name
    return [
        judge_status(name, read_status(access.clients, name)),
        *judge(demands, answers),
        *judge_subnets(demands, count_interfaces(stack.templates), answers),
        *judge_vpcs(vpcs, read_vpcs(ec2, vpcs)),
        *judge_file_systems(file_systems, read_mount_targets(access.clients, file_systems), demands, answers),
        *judge_bootstraps(
            bootstraps,
            read_versions(access.clients, bootstraps),
            f"aws://{_find_environment(artifacts[-1])[0] or 'ACCOUNT'}/{access.region}",
        ),
        *judge_launches(read_launches(ec2, access.region, demands, answers)),
        *judge_offers(blocks, read_offers(ec2, blocks)),
    ]


def _find_region(artifact: StackArtifact) -> str | None:
    """Return the region that the assembly gives a stack; None where it leaves it open."""
    return _find_environment(artifact)[1] or None


def _find_environment(artifact: StackArtifact) -> tuple[str, str]:
    """Return the account and the region that the assembly gives a stack; empty where it leaves them open."""
    account, _, region = str(artifact.entry.get("environment", "")).removeprefix("aws://").partition("/")
    return account.replace("unknown-account", ""), region.replace("unknown-region", "")
