"""`deeplearning-cdk rehearse`: checks, prepares and starts the enclosed lab."""

import argparse
import importlib.util
from pathlib import Path

from cdk_rehearsal.assembly import read_stack
from cdk_rehearsal.cache import find_cache, require_cache
from cdk_rehearsal.error_report import report_error
from cdk_rehearsal.errors import RehearsalError, UnavailableError
from cdk_rehearsal.run.enclosure import require_namespaces, run_enclosed
from cdk_rehearsal.run.lab_record import remove_record
from cdk_rehearsal.run.progress import tell
from deeplearning_cli.fault_cases import print_cases, read_chosen, rehearse_cases
from deeplearning_rehearsal.options import RehearsalOptions
from deeplearning_rehearsal.software.node_software import prepare_software
from deeplearning_rehearsal.template.capacity import require_cluster, require_worker_minimum

_MINUTES = 15.0
_GPUS_PER_NODE = 1


def rehearse(arguments: argparse.Namespace) -> int:
    """
    Rehearse a cloud assembly, or fault cases.

    Returns:
        0 as expected, 1 not as expected, 2 could not be tried (the reason is on standard error).
    """
    if arguments.list_cases:
        return print_cases()
    try:
        options = _read_options(arguments)
        cases = read_chosen(arguments.case, arguments) if arguments.case else ()
        if arguments.app is None:
            _require_assembly(options)
        _require_extra()
        require_namespaces()
        require_cache(options.cache)
        options.out.mkdir(parents=True, exist_ok=True)
        if cases:
            return rehearse_cases(cases, arguments.app, options, jobs=arguments.jobs, again=arguments.again)
        prepare_software(options.assembly, options.stack, options.cache, tell)
        return run_enclosed("deeplearning_rehearsal.first_process", options.to_json())
    except RehearsalError as error:
        return report_error(error, as_json=arguments.json)
    finally:
        if arguments.keep:  # here, because an interrupt ends the lab at once
            remove_record(Path(arguments.out).resolve())


def _read_options(arguments: argparse.Namespace) -> RehearsalOptions:
    if (arguments.assembly is None) == (arguments.app is None):
        raise UnavailableError("assembly must be given, or --app with --case; give one of the two")
    if arguments.app is not None and arguments.case is None:
        raise UnavailableError("--app must be given with --case; without one, synthesize and name the assembly")
    return RehearsalOptions(
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
        lustre_client=bool(arguments.lustre_client),
        verbose=arguments.verbose,
    )


def _require_assembly(options: RehearsalOptions) -> None:
    """
    Judge the assembly, before anything slow is begun.

    Raises:
        RehearsalError: It is none, has not exactly the one stack, or that has no cluster of the wanted size.
    """
    assembly = options.assembly
    if not (assembly / "manifest.json").is_file():
        raise UnavailableError(f"assembly must be a folder that `cdk synth` wrote, got {assembly}; run: cdk synth")
    stack = read_stack(assembly, options.stack)
    require_cluster(stack)
    require_worker_minimum(stack.template, options.nodes)


def _require_extra() -> None:
    for module in ("moto", "boto3", "rich"):
        if importlib.util.find_spec(module) is None:
            raise UnavailableError(f"missing: {module}; run: pip install 'deeplearning-cdk[rehearsal]'")
