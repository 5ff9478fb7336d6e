"""`deeplearning completion`: completion of the subcommands in bash."""

import argparse

from deeplearning_command.context import Context
from deeplearning_command.main import COMMANDS
from deeplearning_command.terminal import print_line

DESCRIPTION = "Print the completion of the commands for bash: source <(deeplearning completion bash)"
BASH = """\
_deeplearning() {{
    [ "$COMP_CWORD" = 1 ] && COMPREPLY=($(compgen -W "{names}" -- "$2"))
}}
complete -o default -F _deeplearning deeplearning"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument("shell", choices=["bash"])


def run(_options: argparse.Namespace, _context: Context) -> int:
    """Print the function that completes the first word."""
    names = [name for each in COMMANDS if not each.is_internal for name in (each.name, each.alias) if name]
    print_line(BASH.format(names=" ".join(names)))
    return 0
