"""Ends of the three commands on an interruption, and when the reader of their output ends first."""

import os
import subprocess
import sys

import pytest

INTERRUPTION = """
import os, signal, sys
from importlib import import_module

class Interruption:
    def find_spec(self, name, *_):
        if name == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGINT)

entry = import_module(sys.argv[1])
sys.meta_path.insert(0, Interruption())
sys.exit(entry.main(sys.argv[3:]))
"""
"""Runs a command, with Ctrl-C when it begins to import a module."""


def start(command, point, *words, output=subprocess.PIPE):
    program = [sys.executable, "-c", INTERRUPTION, f"{command}.main", point, *words]
    # argparse ignores that its help was not written, but Python cannot where output is buffered.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(program, stdout=output, stderr=subprocess.PIPE, text=True, check=False, env=environment)


@pytest.mark.parametrize(
    ("command", "point", "words"),
    [
        ("deeplearning_cli", "deeplearning_cli.status", ["status", "--region", "us-east-1"]),
        ("deeplearning_cli", "deeplearning_cli.rehearsal", ["rehearse", "--list-cases"]),
        ("cdk_rehearsal", "cdk_rehearsal.plan", ["cdk.out"]),
        ("deeplearning_command", "deeplearning_command.jobs.plan", ["plan"]),
        ("deeplearning_command", "deeplearning_command.context", ["completion", "bash"]),
    ],
)
def test_ctrl_c_while_a_command_loads_ends_it_with_status_130_and_one_word(command, point, words):
    ended = start(command, point, *words)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "\ninterrupted\n")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("deeplearning_cli", ["rehearse", "--list-cases"]),
        ("deeplearning_cli", ["completion", "bash"]),
        ("deeplearning_cli", ["--help"]),
        ("cdk_rehearsal", ["--version"]),
        ("deeplearning_command", ["completion", "bash"]),
        ("deeplearning_command", ["run", "--help"]),
    ],
)
def test_a_command_whose_reader_ended_says_nothing_and_has_status_141(command, words):
    reader, writer = os.pipe()
    os.close(reader)
    ended = start(command, "", *words, output=writer)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")
