"""The command `deeplearning-cdk rehearse`: checks, prepares and starts the enclosed lab, one for each fault case."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cdk_rehearsal.cache import find_cache, require_cache
from cdk_rehearsal.errors import RehearsalError, UnavailableError
from cdk_rehearsal.extras import require_rehearsal
from cdk_rehearsal.printing import report_error
from cdk_rehearsal.referees.judge import require_acceptance
from cdk_rehearsal.run.enclosure import require_namespaces, run_enclosed
from cdk_rehearsal.run.lab_record import remove_record
from cdk_rehearsal.run.progress import report_line, report_warnings
from deeplearning_rehearsal.cases.case import Case, CaseError
from deeplearning_rehearsal.cases.loader import find_cases, list_cases
from deeplearning_rehearsal.cases.results import render_results
from deeplearning_rehearsal.cases.suite.runner import SuiteRun, count_jobs, rehearse_one
from deeplearning_rehearsal.options import RehearsalOptions
from deeplearning_rehearsal.platforms.registry import find_platform
from deeplearning_rehearsal.software.node_software import prepare_software
from deeplearning_rehearsal.template import count_gpus, read_cluster

_MINUTES = 15.0
_GPUS_PER_NODE = 1
ALL = "all"
_INTERRUPTED = (130, 143)
_UNTRIED = 2


def rehearse(arguments: argparse.Namespace) -> int:
    """Rehearse a cloud assembly, or fault cases; 0 as expected, 1 not as expected, 2 could not be tried."""
    if arguments.list_cases:
        return print_cases(as_json=arguments.json)
    try:
        options = _read_options(arguments)
        options.read_policies()
        cases = read_chosen(arguments.case, arguments) if arguments.case else ()
        if arguments.app is None:
            options = _require_assembly(options, arguments.gpus_per_node)
        require_rehearsal()
        if arguments.orders is not None:
            return _try_orders(options, arguments.orders)
        require_namespaces()
        require_cache(options.cache)
        options.out.mkdir(parents=True, exist_ok=True)
        if cases:
            return rehearse_cases(cases, arguments.app, options, jobs=arguments.jobs, again=arguments.again)
        stack = read_cluster(options.assembly, options.stack)
        if options.referees:
            require_acceptance(stack.deployment, options.cache)
        prepare_software(stack, options.cache, report_line)
        return run_enclosed("deeplearning_rehearsal.rehearsal:carry_out", options.to_json())
    except RehearsalError as error:
        return report_error(error, as_json=arguments.json)
    finally:
        if arguments.keep:  # here, because an interrupt ends the lab at once
            remove_record(Path(arguments.out).resolve())


def _try_orders(options: RehearsalOptions, count: int) -> int:
    # moto takes two seconds to load, which the enclosed rehearsal spends in its own process.
    from cdk_rehearsal.embedded_aws.base.cloud_options import no_usual_order  # noqa: PLC0415
    from cdk_rehearsal.orders import print_failures, try_orders  # noqa: PLC0415
    from cdk_rehearsal.referees.order import find_usual_order  # noqa: PLC0415
    from deeplearning_rehearsal.cases.run.cloud_faults import make_cloud_options  # noqa: PLC0415

    stack = read_cluster(options.assembly, options.stack)
    if options.referees:
        require_acceptance(stack.deployment, options.cache)
    find_order = find_usual_order if options.referees else no_usual_order
    cloud = make_cloud_options(find_usual_order=find_order, policies=options.read_policies())
    failures = try_orders(options.assembly, count, stacks=[stack.path], options=cloud, cache=options.cache)
    return print_failures(failures, as_json=options.json)


def _read_options(arguments: argparse.Namespace) -> RehearsalOptions:
    if (arguments.assembly is None) == (arguments.app is None):
        raise UnavailableError("assembly must be given, or --app with --case; give one of the two")
    if arguments.app is not None and arguments.case is None:
        raise UnavailableError("--app must be given with --case; without one, synthesize and name the assembly")
    seed = {} if arguments.seed is None else {"seed": arguments.seed}
    return RehearsalOptions(
        **seed,
        assembly=Path(arguments.assembly or "cdk.out").resolve(),
        stack=arguments.stack,
        nodes=arguments.nodes,
        gpus_per_node=_GPUS_PER_NODE if arguments.gpus_per_node is None else arguments.gpus_per_node,
        expect=arguments.expect or "trained",
        minutes=_MINUTES if arguments.minutes is None else arguments.minutes,
        keep=arguments.keep,
        json=arguments.json,
        out=Path(arguments.out).resolve(),
        cache=Path(arguments.cache).resolve() if arguments.cache else find_cache(),
        referees=arguments.referees,
        lustre_client=bool(arguments.lustre_client),
        organization_policies=arguments.organization_policies or (),
        deployment_boundary=arguments.deployment_boundary,
        account_policies=dict(arguments.account_policies),
        verbose=arguments.verbose,
    )


def _require_assembly(options: RehearsalOptions, gpus: int | None) -> RehearsalOptions:
    """
    Refuse what is no assembly, or has no cluster of the wanted size, before anything slow begins.

    Returns the options with the GPUs of a node: by default one, where the type of an instance has any.
    """
    stack = read_cluster(options.assembly, options.stack)
    if options.nodes is not None:
        find_platform(stack.template).require_nodes(stack.template, options.nodes)
    report_warnings(options.assembly, [options.stack] if options.stack else [])
    if gpus is not None:
        return options
    default = find_platform(stack.template).gpus_per_node
    return replace(options, gpus_per_node=min(default, count_gpus(stack.template)))


def print_cases(*, as_json: bool) -> int:
    """Print a line for each case of the package, or a JSON list of them; 0."""
    cases = list_cases()
    if as_json:
        print(json.dumps([{"name": case.name, "title": case.title} for case in cases], indent=2))
        return 0
    width = max(len(case.name) for case in cases)
    for case in cases:
        print(f"{case.name:<{width}}  {case.title}")
    return 0


def read_chosen(names: str, arguments: argparse.Namespace) -> tuple[Case, ...]:
    """
    Find the cases that `--case` names; all are checked before one is rehearsed.

    Raises:
        CaseError: A case cannot be carried out, or contradicts the other arguments.
    """
    chosen = [name.strip() for name in names.split(",")]
    found = list_cases() if chosen == [ALL] else [case for name in chosen for case in find_cases(name)]
    cases = tuple({case.reference: case for case in found}.values())
    for option in ("nodes", "expect", "minutes", "gpus_per_node", "lustre_client", "orders"):
        if getattr(arguments, option) is not None:
            raise CaseError(f"--{option.replace('_', '-')} must be left out with --case; the case says it")
    if len(cases) > 1 and arguments.keep:
        raise CaseError(f"--keep must be given with one case, got --case {names}; name a case")
    for case in cases:
        if arguments.app is None and case.needs_synthesis:
            raise CaseError(f"case {case.name} must have a stack of its own; give --app 'COMMAND' instead of assembly")
    return cases


def rehearse_cases(
    chosen: Sequence[Case], app: str | None, options: RehearsalOptions, *, jobs: int | None, again: bool
) -> int:
    """
    Rehearse cases, and continue after one that fails.

    A single case is always rehearsed, and shown while it runs. Several run at once, `jobs` of them (default: one more
    than there are cores), and those that passed on the same sources are repeated only with `again`. With `app`
    each case has a stack of its own; without one, the assembly of the options is deployed.

    Returns:
        0 when each passed, 1 when one did not, 2 when a single one has no verdict, 130 or 143 when the user ended it.
    """
    if len(chosen) == 1:
        status, result = rehearse_one(chosen[0], app, options)
        return status if status in (*_INTERRUPTED, _UNTRIED) else int(result["verdict"] != "pass")
    suite = SuiteRun(chosen, app, options, jobs or count_jobs())
    try:
        suite.carry_out(again=again)
    except KeyboardInterrupt:
        report_line("interrupted; the same command goes on with the cases that are left")
        return _INTERRUPTED[0]
    if suite.results:
        print(json.dumps(suite.results, indent=2) if options.json else render_results(suite.results), flush=True)
    if suite.skipped:
        left = "" if suite.results else "nothing is left to run: "
        report_line(f"{left}{len(suite.skipped)} cases passed on these sources before: {', '.join(suite.skipped)}")
        report_line("--again (or AGAIN=1 with make) repeats them")
    return int(any(result["verdict"] != "pass" for result in suite.results.values()))
