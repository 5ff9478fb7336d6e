"""Wrapper `elastic_horovod.sh` of Horovod's own launcher, with programs of the test in place of the image's."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.real_time import GENEROUS_SECONDS

CHECKOUT = Path(__file__).parents[3]
LAUNCHER = CHECKOUT / "userdata" / "deeplearning_jobs" / "elastic_horovod.sh"
EXAMPLE = CHECKOUT / "examples" / "run_elastic.sh"
AGENT = "agent/deeplearning_jobs/elastic_horovod.sh"
HOROVODRUN = """
echo run >> "$TEST/runs"
while [ "$1" != --host-discovery-script ]; do shift; done
for answer in 1 2; do "$2" | sort | tr '\\n' ' '; echo; done > "$TEST/hosts"
while [ "$1" != env ]; do shift; done
"$@" || true
exit "$(cat "$TEST/status")"
"""
PROGRAMS = {
    "getent": 'echo "10.0.0.${2#i-0} STREAM"',
    "ip": "[ \"$6\" != 10.0.0.1 ] || echo '2: ens5 inet'",
    "ssh": 'while [ "${1#-}" != "$1" ]; do shift 2; done; echo "$@" >> "$TEST/ssh"; [ "$1" != i-03 ]',
    "python3": f'if [ "$1" = -c ]; then {HOROVODRUN} fi\necho "$@" >> "$TEST/ranks"; exec "$TEST/program"',
}
ALL_READY = "i-02:1\ni-01:1\n"


class Cluster:
    """A master i-01 and what runs on it."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "efs").mkdir()
        for name, text in PROGRAMS.items():
            self.write(f"bin/{name}", f"#!/bin/bash\n{text}\n")
        self.write("discover_hosts", f"#!/bin/sh\ncat {folder}/hosts-now\n")
        (folder / "hosts-now").write_text(ALL_READY)
        self.write("program", "#!/bin/sh\nexit 0\n")
        (folder / "status").write_text("0")
        (folder / "agent" / "deeplearning_jobs").mkdir(parents=True)
        for name, source in ((AGENT, LAUNCHER), ("run_elastic.sh", EXAMPLE)):
            (folder / name).write_text(source.read_text().replace("/opt/deeplearning/", f"{folder}/"))

    def write(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def lines(self, name):
        return (self.folder / name).read_text().splitlines()

    def launch(self, *arguments, script=AGENT, **variables):
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "TEST": str(self.folder), "EFS_MOUNT": str(self.folder / "efs")}
        return subprocess.run(
            ["bash", self.folder / script, *arguments],
            env=environment | {"ELASTIC_PAUSE_SECONDS": "0"} | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=GENEROUS_SECONDS,
        )


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


def test_without_arguments_it_runs_the_example_from_the_shared_file_system_and_leaves_nothing_there(cluster):
    answer = cluster.launch()
    assert answer.returncode == 0, answer.stderr
    assert cluster.lines("ranks") == [f"{cluster.folder}/efs/train_elastic.py"]
    assert list((cluster.folder / "efs").iterdir()) == []


@pytest.mark.parametrize("script", [AGENT, "run_elastic.sh"])
def test_the_program_gets_its_arguments_unchanged_also_from_the_example(cluster, script):
    """Nodes have the launcher from the agent's archive, in which no file is executable."""
    answer = cluster.launch("my program.py", "--name", "two words", script=script)
    assert answer.returncode == 0, answer.stderr
    assert cluster.lines("ranks") == ["my program.py --name two words"]


@pytest.mark.parametrize("status", ["0", "1"])
def test_the_job_is_done_when_a_rank_says_so_whatever_horovod_says(cluster, status):
    (cluster.folder / "status").write_text(status)
    assert cluster.launch().returncode == 0
    assert len(cluster.lines("runs")) == 1


@pytest.mark.parametrize("status", ["0", "1"])
def test_a_job_that_no_rank_ends_is_started_a_bounded_number_of_times(cluster, status):
    cluster.write("program", "#!/bin/sh\nexit 3\n")
    (cluster.folder / "status").write_text(status)
    answer = cluster.launch(ELASTIC_TRIES="3")
    assert answer.returncode == 1
    assert len(cluster.lines("runs")) == 3
    assert f"status {status}" in answer.stderr
    assert "try 3 of 3" in answer.stderr


def test_a_job_that_fails_is_started_again(cluster):
    cluster.write("program", '#!/bin/sh\ntest "$(wc -l < "$TEST/runs")" -gt 1\n')
    assert cluster.launch().returncode == 0
    assert len(cluster.lines("runs")) == 2


@pytest.mark.parametrize("variables", [{}, {"ELASTIC_PYTHON": "/opt/python"}])
def test_horovod_sees_the_master_first_and_then_every_host_that_is_ready(cluster, variables):
    cluster.launch(**variables)
    assert [line.split() for line in cluster.lines("hosts")] == [["i-01:1"], ["i-01:1", "i-02:1"]]
    assert cluster.lines("ssh") == [f"i-02 {variables.get('ELASTIC_PYTHON', 'python3')} -c 'import horovod.torch'"]


def test_a_host_on_which_the_framework_cannot_be_loaded_does_not_keep_the_job_from_starting(cluster):
    (cluster.folder / "hosts-now").write_text(ALL_READY + "i-03:1\n")
    cluster.write("bin/sleep", "#!/bin/sh\nexec /bin/sleep 0.05\n")
    assert cluster.launch().returncode == 0
    assert cluster.lines("hosts")[1].split() == ["i-01:1", "i-02:1"]


def test_it_says_so_when_the_hosts_do_not_include_this_node(cluster):
    (cluster.folder / "hosts-now").write_text("i-02:1\n")
    answer = cluster.launch()
    assert answer.returncode == 1
    assert "discover_hosts must list this node, got: i-02:1" in answer.stderr


def test_a_command_line_of_its_own_is_run_as_it_is_when_no_starter_is_named(cluster):
    answer = cluster.launch("env", "MARK=1", f"{cluster.folder}/program", "two words", ELASTIC_STARTER="")
    assert answer.returncode == 0, answer.stderr
    assert not (cluster.folder / "ranks").exists()
