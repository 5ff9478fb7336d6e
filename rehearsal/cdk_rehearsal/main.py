"""`cdk-rehearse`: rehearses the stacks of any CDK app."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from cdk_rehearsal.assembly import read_stacks, require_parameters
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.extras import require_rehearsal
from cdk_rehearsal.faults.target import Fault
from cdk_rehearsal.iam.policy_arguments import add_policies, read_pair
from cdk_rehearsal.printing import report_error, run_command
from cdk_rehearsal.run.progress import report_line, report_warnings

if TYPE_CHECKING:
    from cdk_rehearsal.plan import Plan
    from cdk_rehearsal.report.report import Report

PROGRAM = "cdk-rehearse"
_POLICIES = ("organization_policies", "deployment_boundary")


def main(arguments: Sequence[str] | None = None) -> int:
    """Rehearse; 0 as expected, 1 not as expected, 2 could not be tried, 130 interrupted."""
    return run_command(lambda: _rehearse(_make_parser().parse_args(arguments)))


def _rehearse(options: argparse.Namespace) -> int:
    from cdk_rehearsal.plan import Plan, rehearse  # noqa: PLC0415 - slow, which --help need not wait for

    names = ("assembly", "stacks", "expect", "check", "fault", "apt", "referees", "seed", "minutes", "out", "cache")
    values = {name: getattr(options, name) for name in (*names, *_POLICIES)}
    given = {name: value for name, value in values.items() if value is not None}
    given |= {"parameters": dict(options.parameter), "accept": dict(options.accept)}
    try:
        _write_experiment(options)
        plan = Plan(account_policies=dict(options.account_policies), **given).resolve()
        if options.orders is not None:
            return _try_orders(plan, options)
        report = rehearse(plan)
    except (RehearsalError, ValueError) as error:
        return report_error(error, as_json=options.json, program=PROGRAM)
    if options.json:
        sys.stdout.write(json.dumps(report.to_document(), indent=2) + "\n")
    (sys.stderr if options.json else sys.stdout).write(_end(plan, report) + "\n")
    return int(report.verdict != "pass")


def _write_experiment(options: argparse.Namespace) -> None:
    if options.fis is None:
        return
    from cdk_rehearsal.faults.experiment import write_experiment  # noqa: PLC0415 - for this option alone

    if options.fault is None:
        raise ValueError("--fis must come with --fault, whose experiment it writes")
    stacks = read_stacks(Path(options.assembly), options.stacks or ())
    report_line(f"fis: {write_experiment(Path(options.fis), options.fault, stacks)}")


def _end(plan: "Plan", report: "Report") -> str:
    from cdk_rehearsal.report.report import name_following, name_path  # noqa: PLC0415

    following = ""
    if plan.expect == "complete":
        has_passed = report.verdict == "pass"
        following = name_following(Path(plan.assembly), plan.stacks, has_passed=has_passed, seed=plan.seed)
    return report.to_ending(f"{name_path(Path(plan.out) / 'report.txt')} (also .json)", following)


def _try_orders(plan: "Plan", options: argparse.Namespace) -> int:
    require_rehearsal()
    # moto takes a second, which a rehearsal loads in the process of its embedded AWS.
    from cdk_rehearsal.embedded_aws.base.cloud_options import CloudOptions, no_usual_order  # noqa: PLC0415
    from cdk_rehearsal.orders import print_failures, try_orders  # noqa: PLC0415
    from cdk_rehearsal.referees.judge import require_acceptance  # noqa: PLC0415
    from cdk_rehearsal.referees.order import find_usual_order  # noqa: PLC0415

    report_warnings(Path(plan.assembly), plan.stacks)
    stacks, parameters = read_stacks(Path(plan.assembly), plan.stacks), dict(options.parameter)
    require_parameters(stacks, parameters)
    if plan.referees:
        require_acceptance(stacks, Path(str(plan.cache)), parameters, plan.accept)
    cloud = CloudOptions(
        policies=plan.read_policies(), find_usual_order=find_usual_order if plan.referees else no_usual_order
    )
    failures = try_orders(
        plan.assembly, options.orders, stacks=plan.stacks, parameters=parameters, options=cloud, cache=plan.cache
    )
    return print_failures(failures, as_json=options.json)


def _make_parser() -> argparse.ArgumentParser:
    from importlib.metadata import version  # noqa: PLC0415 - slow, and Ctrl-C is reported from here on

    parser = argparse.ArgumentParser(
        PROGRAM,
        description="Deploy synthesized stacks to an embedded AWS on this machine, boot every instance with its user "
        "data, and judge what became of them. Needs Linux and root, and no AWS account.",
        epilog="exit status: 0 as expected, 1 not as expected, 2 could not be tried, 130 interrupted",
    )
    add = parser.add_argument
    add("--version", action="version", version=f"%(prog)s {version('deeplearning-cdk')}")
    add("assembly", help="the cloud assembly that `cdk synth` wrote, usually cdk.out")
    stack_help = "name, or path such as 'Prod/*', of stacks to deploy after those that they need; repeatable"
    add("--stack", action="append", dest="stacks", metavar="NAME", help=f"{stack_help} (default: all)")
    add("--expect", choices=("complete", "rolled-back"), default="complete", help="default: %(default)s")
    add("--check", metavar="FILE", help="Python file with check(run), called when the stack is complete")
    add(
        "--parameter",
        action="append",
        type=read_pair,
        default=[],
        metavar="NAME=VALUE",
        help="of the templates; repeatable",
    )
    add_policies(parser)
    _add_rules(parser)
    apt_help = "Debian packages that machines may install, such as unzip,jq, beside those that user data names"
    add("--apt", type=lambda text: text.split(","), metavar="NAMES", help=apt_help)
    add("--seed", type=int, metavar="N", help="order in which resources are created (default: drawn, and shown)")
    _add_faults(parser)
    add("--minutes", type=float, default=10.0, metavar="M", help="judge the stacks after M minutes (default: 10)")
    add("--out", default="build/rehearsal", metavar="DIR", help="where reports go (default: %(default)s)")
    add("--cache", metavar="DIR", help="keeps downloads and images (default: below $XDG_CACHE_HOME or ~/.cache)")
    add("--json", action="store_true", help="print the report as JSON")
    return parser


def _add_faults(parser: argparse.ArgumentParser) -> None:
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--orders",
        type=int,
        metavar="N",
        help="create and delete the stacks in N orders, seeds 1 to N, without booting an instance; needs no root",
    )
    kind.add_argument(
        "--fault",
        choices=get_args(Fault),
        help="let launches of groups fail for want of capacity; or, when the stacks are complete, end an instance of a "
        "group, which must replace it, or cut its subnet off",
    )
    fis = "write that fault as a CloudFormation template for AWS Fault Injection Service, with its role and its cost"
    parser.add_argument("--fis", metavar="FILE", help=fis)


def _add_rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-referees",
        action="store_false",
        dest="referees",
        help="deploy a template that breaks a rule of AWS (default: refuse it, with all findings)",
    )
    parser.add_argument(
        "--accept",
        action="append",
        type=read_pair,
        default=[],
        metavar="RULE=REASON",
        help="take the findings of a rule of AWS, such as E3030, for this reason; the report shows it; repeatable",
    )


if __name__ == "__main__":
    sys.exit(main())
