"""The run script that reaches every node after formation: the constructs take it, and nodes know its commands."""

import shlex
import subprocess
from pathlib import Path

from deeplearning_cdk import Master
from deeplearning_command.main import make_parser

SCRIPT = Path(__file__).parents[3] / "examples" / "run_on_every_node.sh"


def test_it_is_a_run_script_that_a_shell_reads():
    assert Master(run_script=str(SCRIPT)).run_script == str(SCRIPT)
    assert subprocess.run(["bash", "-n", SCRIPT], check=False).returncode == 0


def test_nodes_have_its_commands_and_its_program_is_an_example():
    commands = [shlex.split(line)[1:] for line in SCRIPT.read_text().splitlines() if line.startswith("deeplearning ")]
    on_nodes, job = (make_parser().parse_args(command) for command in commands)
    assert on_nodes.words == ["--", "sudo -n sysctl -w vm.swappiness=10"]
    program = commands[1][-1].replace("$EFS_MOUNT/examples", str(SCRIPT.parent))
    assert job.launcher == "torchrun"
    assert Path(program).is_file()
