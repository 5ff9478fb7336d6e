"""
The `deeplearning-cdk` command.

Nothing heavy is imported before a subcommand runs, so that `--help` answers at once.
"""

import argparse
import importlib.util
import sys
from collections.abc import Sequence

from cdk_rehearsal.error_report import report_error
from cdk_rehearsal.errors import UnavailableError
from deeplearning_cli.operation_parsers import add_operation_commands
from deeplearning_cli.update_parsers import add_update_commands
from deeplearning_contract.data_sets import DATA_SETS
from deeplearning_contract.version import VERSION

SHELLS = ("bash", "zsh", "tcsh")
MOST_MINUTES = 1440
"""A day; a rehearsal takes minutes."""


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run the command line.

    Args:
        argv: Arguments without the program's name. Default: those of the process.

    Returns:
        The exit status: 0 as promised, 1 not as promised, 2 could not be tried, 130 interrupted.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    own, command = split_command(words)
    arguments = make_parser().parse_args(own)
    if command:
        arguments.command = command
    try:
        status: int = arguments.run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return 130
    return status


def split_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of `ssh` from the command behind `--`; argparse would take it for the stack's name."""
    if list(words[:1]) != ["ssh"] or "--" not in words:
        return list(words), []
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1 :])


def make_parser() -> argparse.ArgumentParser:
    """Return the parser; nothing heavy is imported for it."""
    parser = argparse.ArgumentParser(
        prog="deeplearning-cdk",
        description="Deep-learning training clusters on AWS: the command on your side.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_rehearse(commands)
    _add_prepare_data(commands)
    add_operation_commands(commands)
    add_update_commands(commands)
    _add_completion(commands)
    return parser


def _add_rehearse(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "rehearse",
        help="deploy a cloud assembly to an embedded AWS on this machine, boot its nodes and train",
        description="Deploy a synthesized cloud assembly to an embedded AWS on this machine, boot every node with its "
        "real user data, form the cluster and train with Horovod over SSH. Needs Linux and root, and no AWS account.",
        epilog="exit status: 0 as expected, 1 not as expected, 2 could not be tried, 130 interrupted",
    )
    add = parser.add_argument
    add("assembly", nargs="?", help="the cloud assembly that `cdk synth` wrote, usually cdk.out")
    add("--stack", metavar="NAME", help="which stack of the assembly (default: its only one)")
    add("--nodes", type=_node_count, metavar="N", help="nodes in all, master included (default: as the template says)")
    add("--gpus-per-node", type=_gpu_count, metavar="N", help="GPUs that nvidia-smi shows (default: 1)")
    add(
        "--lustre-client",
        action="store_true",
        default=None,
        help="let the nodes' image have a client of FSx for Lustre",
    )
    add(
        "--expect",
        choices=("trained", "formed", "failed"),
        help="what to wait for and judge: a trained model, a formed cluster, or a stack that fails (default: trained)",
    )
    add("--minutes", type=_minutes, metavar="M", help="give up after M minutes (default: 15)")
    add("--case", metavar="NAMES", help="inject fault cases and judge them: names or .toml files (a,b,c), or all")
    add("--jobs", type=_job_count, metavar="N", help="cases at once, as far as memory allows (default: 2)")
    add("--again", action="store_true", help="repeat cases that passed on the same sources, too")
    add("--list-cases", action="store_true", help="list the fault cases and end")
    add("--app", metavar="COMMAND", help="with --case: synthesize each case's own stack with this CDK app")
    add("--keep", action="store_true", help="keep the cluster running until Ctrl-C, and say how to log in")
    add("--verbose", "-v", action="store_true", help="show routine too, such as calls of the function that go well")
    add("--json", action="store_true", help="print the report as JSON on standard output, progress on standard error")
    add("--out", default="build/rehearsal", metavar="DIR", help="where reports go (default: %(default)s)")
    shared = "$XDG_CACHE_HOME/deeplearning-cdk, or ~/.cache/deeplearning-cdk"
    add("--cache", metavar="DIR", help=f"keeps downloads and images for every checkout (default: {shared})")
    parser.set_defaults(run=_rehearse, parser=parser)


def _add_prepare_data(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "prepare-data",
        help="download, check, bundle and upload data to S3, for clusters to read",
        description="Download files, check them, put them and local files into one archive and bring it to S3, with "
        "its SHA-256 beside it. After an interruption the same command resumes downloads, leaves out files that are "
        "in S3 already and sends the others from their beginning; done, it does nothing. What archives hold is put "
        "into the bundle, not the archives themselves.",
        epilog="exit status: 0 the data is in S3, 1 something failed, 2 it could not be begun, 130 interrupted; "
        "example: deeplearning-cdk prepare-data s3://team-data/coco-2017.tar --preset coco-2017",
    )
    add = parser.add_argument
    add("destination", help="s3://BUCKET/NAME.tar, with --zip .zip, with --no-bundle s3://BUCKET/PREFIX/")
    add("--path", action="append", default=[], metavar="PATH", help="a local file or folder; may be repeated")
    add("--url", action="append", default=[], metavar="URL[=SHA256]", help="what to download; may be repeated")
    add("--preset", action="append", default=[], choices=tuple(DATA_SETS), help="a known data set; may be repeated")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--zip", action="store_true", help="make a .zip, not a .tar")
    form.add_argument("--no-bundle", action="store_true", help="upload every file as it is, below a prefix")
    add(
        "--work",
        default="build/data",
        metavar="DIR",
        help="where downloads and the bundle are kept (default: %(default)s)",
    )
    add("--dry-run", action="store_true", help="say what would be done, and do nothing")
    parser.set_defaults(run=_prepare_data)


def _add_completion(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "completion",
        help="print a script that completes this command's words in a shell",
        description="Print a script that completes the words of deeplearning-cdk in a shell.",
        epilog="example, for bash: source <(deeplearning-cdk completion bash)",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=_print_completion)


def _print_completion(arguments: argparse.Namespace) -> int:
    if importlib.util.find_spec("shtab") is None:
        return report_error(UnavailableError("missing: shtab; run: pip install 'deeplearning-cdk[operate]'"))
    import shtab  # noqa: PLC0415 - only this command needs it

    print(shtab.complete(make_parser(), arguments.shell))
    return 0


def _prepare_data(arguments: argparse.Namespace) -> int:
    from deeplearning_cli.data.preparation import prepare_data  # noqa: PLC0415 - only this command needs it

    return prepare_data(arguments)


def _node_count(text: str) -> int:
    return _whole_number(text, 1, 250)


def _job_count(text: str) -> int:
    return _whole_number(text, 1, 64)


def _gpu_count(text: str) -> int:
    return _whole_number(text, 0, 16)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= MOST_MINUTES:
        raise argparse.ArgumentTypeError(f"must be a number of minutes above 0, at most {MOST_MINUTES}, got {text!r}")
    return minutes


def _whole_number(text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}, got {text!r}")
    return int(text)


def _rehearse(arguments: argparse.Namespace) -> int:
    if arguments.assembly is None and arguments.app is None and not arguments.list_cases:
        arguments.parser.error("the following arguments are required: assembly, or --app with --case")
    from deeplearning_cli.rehearse import rehearse  # noqa: PLC0415 - only this command needs the rehearsal

    return rehearse(arguments)


if __name__ == "__main__":
    sys.exit(main())
