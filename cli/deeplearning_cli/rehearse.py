"""`deeplearning-cdk rehearse`: checks, prepares and starts the enclosed lab."""

import argparse
import importlib.util
import sys
from pathlib import Path

from deeplearning_rehearsal.enclosure import require_namespaces, run_enclosed
from deeplearning_rehearsal.errors import UnavailableError
from deeplearning_rehearsal.options import RehearsalOptions

UNAVAILABLE = 2


def rehearse(arguments: argparse.Namespace) -> int:
    """
    Rehearse a cloud assembly.

    Returns:
        0 as expected, 1 not as expected, 2 could not be tried (the reason is on standard error).
    """
    options = RehearsalOptions(
        assembly=Path(arguments.assembly).resolve(),
        stack=arguments.stack,
        nodes=arguments.nodes,
        gpus_per_node=arguments.gpus_per_node,
        expect=arguments.expect,
        minutes=arguments.minutes,
        keep=arguments.keep,
        json=arguments.json,
        out=Path(arguments.out).resolve(),
    )
    try:
        _require_assembly(options.assembly)
        _require_extra()
        require_namespaces()
        _prepare_base(options)
    except UnavailableError as error:
        print(f"deeplearning-cdk: {error}", file=sys.stderr)
        return UNAVAILABLE
    return run_enclosed("deeplearning_rehearsal.first_process", options.to_json())


def _require_assembly(assembly: Path) -> None:
    if not (assembly / "manifest.json").is_file():
        raise UnavailableError(f"assembly must be a folder that `cdk synth` wrote, got {assembly}; run: cdk synth")


def _require_extra() -> None:
    for module in ("moto", "boto3", "rich"):
        if importlib.util.find_spec(module) is None:
            raise UnavailableError(f"missing: {module}; run: pip install 'deeplearning-cdk[rehearsal]'")


def _prepare_base(options: RehearsalOptions) -> None:
    from deeplearning_rehearsal.lab.base_root import prepare_base_root  # noqa: PLC0415 - after the cheap checks

    options.out.mkdir(parents=True, exist_ok=True)
    prepare_base_root(options.base_cache, tell=lambda line: print(line, file=sys.stderr, flush=True))
