"""Programs that `tensorboard.sh` starts and its output, with programs of the test in place of the node's."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.real_time import GENEROUS_SECONDS

SCRIPT = Path(__file__).parents[3] / "examples" / "tensorboard.sh"
PROGRAMS = {
    "getent": '[ "$2" = i-01 ] && echo "10.0.0.1 STREAM"',
    "ip": '[ "$6" != "$TEST_OWN" ] || echo \'2: ens5 inet\'',
    "id": "echo ubuntu",
    "tensorboard": 'echo "$@"',
}


def run(folder, *arguments, own="10.0.0.1"):
    (folder / "bin").mkdir()
    for name, text in PROGRAMS.items():
        (folder / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    (folder / "workers").write_text("i-01\ni-02\n")
    (folder / "node.json").write_text('{"role": "master", "instance_id": "i-0abc"}')
    (folder / "tensorboard.sh").write_text(SCRIPT.read_text().replace("/opt/deeplearning/", f"{folder}/"))
    variables = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "TEST_OWN": own}
    environment = os.environ | variables | {"DEEPLEARNING_WORKERS_PATH": str(folder / "workers")}
    command = ["bash", folder / "tensorboard.sh", *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=GENEROUS_SECONDS
    )


@pytest.mark.parametrize(("arguments", "port"), [(("/efs/train",), "6006"), (("/efs/train", "7007"), "7007")])
def test_it_listens_on_the_private_address_alone_and_prints_both_ways_to_it(tmp_path, arguments, port):
    answer = run(tmp_path, *arguments)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == ["--logdir", "/efs/train", "--host", "10.0.0.1", "--port", port]
    assert f"ssh -N -L {port}:10.0.0.1:{port} ubuntu@" in answer.stderr
    assert "--target i-0abc " in answer.stderr
    assert f"host=10.0.0.1,portNumber={port},localPortNumber={port}" in answer.stderr


def test_elsewhere_than_on_the_master_it_starts_nothing(tmp_path):
    answer = run(tmp_path, "/efs/train", own="10.0.0.2")
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert "must run on the master, whose address is 10.0.0.1" in answer.stderr
