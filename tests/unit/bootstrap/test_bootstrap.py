"""User data as a whole, run for real: its paths below a temporary folder, its programs tiny executables."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deeplearning_cdk.nodes.user_data import REPORT_FAILURE
from tests.real_time import GENEROUS_SECONDS

USERDATA = Path(__file__).parents[3] / "userdata"
AGENT = {
    "deeplearning_agent/__init__.py": "",
    "deeplearning_agent/__main__.py": "import sys\nassert sys.argv[1:] == ['--check']\n",
}


class Bootstrap:
    """User data, rendered as the constructs do."""

    def __init__(self, root, url, metadata_url, agent, bucket_url=None):
        self.root = root
        self.environment = {
            "PATH": str(root / "programs"),
            "AWS_ENDPOINT_URL": bucket_url or url,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_url,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        settings = {"cluster": "c", "role": "master", "region": "eu-west-1", "signal_url": f"{url}/signal"}
        self.replacements = {
            "\n__SETTINGS__\n": "\n" + json.dumps(settings | {"report_queue_url": f"{url}/1/reports"}, indent=1) + "\n",
            "\n__FETCH_AGENT__\n": "\n" + (USERDATA / "fetch_agent.py").read_text() + "\n",
            "\n__USER_DATA__\n": "\n\n",
            "__PYTHON__": sys.executable,
            "__AGENT_BUCKET__": "assets",
            "__AGENT_KEY__": "agent.zip",
            "__AGENT_SHA256__": hashlib.sha256(agent).hexdigest(),
            "__REGION__": "eu-west-1",
        }
        for folder in ("opt", "var/log", "etc/systemd/system", "programs"):
            (root / folder).mkdir(parents=True)
        for name in ("bash", "mkdir", "cat", "mv"):
            (root / "programs" / name).symlink_to(shutil.which(name))
        (root / "programs/python3").symlink_to(sys.executable)
        self.program("systemctl", f'echo "$@" >>{root}/systemctl.calls')

    def program(self, name, body):
        path = self.root / "programs" / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def text(self):
        text = (USERDATA / "bootstrap.sh").read_text()
        for placeholder, value in self.replacements.items():
            assert placeholder in text
            text = text.replace(placeholder, value)
        for path in ("/opt/deeplearning", "/var/log/", "/etc/systemd/"):
            text = text.replace(path, f"{self.root}{path}")
        return text

    def run(self):
        return subprocess.run(
            ["/bin/bash", "-c", self.text()],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=GENEROUS_SECONDS,
        )

    def files(self):
        return {
            str(path.relative_to(self.root)): (path.read_bytes(), path.stat().st_mode)
            for path in self.root.rglob("*")
            if path.is_file() and "var/log" not in str(path) and path.name != "systemctl.calls"
        }


@pytest.fixture
def bootstrap(tmp_path, server, metadata, make_zip):
    data = make_zip(AGENT)
    server.answers |= {"/assets/agent.zip": [(200, data)], "/signal": [(200, b"")]}
    return Bootstrap(tmp_path, server.url, metadata.url, data)


def signals(server):
    return [json.loads(body) for method, path, _, body in server.requests if path == "/signal"]


def test_installs_the_agent_as_a_service_and_starts_it(bootstrap, server):
    done = bootstrap.run()
    assert done.returncode == 0, done.stdout + (bootstrap.root / "var/log/deeplearning-bootstrap.log").read_text()
    assert (bootstrap.root / "systemctl.calls").read_text().splitlines() == [
        "daemon-reload",
        "enable deeplearning-agent.service",
        # An image that was made from a node has an agent running by now, of another cluster.
        "restart deeplearning-agent.service",
    ]
    unit = (bootstrap.root / "etc/systemd/system/deeplearning-agent.service").read_text()
    assert f"ExecStart={sys.executable} -m deeplearning_agent\n" in unit
    assert "Restart=always\n" in unit
    assert "WorkingDirectory=" in unit
    assert "PYTHONPATH=" not in unit, "programs that the agent starts do not import its boto3"
    # For run scripts: EFA locks memory, and OOMPolicy=stop would end the agent with a killed rank.
    assert {"LimitMEMLOCK=infinity", "LimitNOFILE=1048576", "OOMPolicy=continue"} <= set(unit.splitlines())
    (after,) = (line for line in unit.splitlines() if line.startswith("After="))
    assert "remote-fs.target" in after  # systemd mounts what /etc/fstab has, and the agent must find it mounted
    assert (bootstrap.root / "opt/deeplearning/agent/deeplearning_agent/__main__.py").exists()
    settings = bootstrap.root / "opt/deeplearning/settings.json"
    assert settings.stat().st_mode & 0o777 == 0o600, "it has the signal's URL, for root alone"
    assert signals(server) == []


@pytest.mark.fault(49)
@pytest.mark.defect("D32")
def test_user_data_that_runs_twice_leaves_identical_files(bootstrap):
    bootstrap.run()
    before = bootstrap.files()
    assert bootstrap.run().returncode == 0
    assert bootstrap.files() == before
    assert len(before) >= 6


def test_an_agent_that_cannot_start_fails_the_stack_with_its_last_lines(bootstrap, server, make_zip):
    data = make_zip({**AGENT, "deeplearning_agent/__main__.py": "import no_such_module\n"})
    server.answers["/assets/agent.zip"] = [(200, data)]
    bootstrap.replacements["__AGENT_SHA256__"] = hashlib.sha256(data).hexdigest()
    assert bootstrap.run().returncode == 1
    [signal] = signals(server)
    assert signal["Status"] == "FAILURE"
    assert "-m deeplearning_agent --check" in signal["Reason"]
    assert "No module named 'no_such_module'" in signal["Reason"]
    assert not (bootstrap.root / "systemctl.calls").exists()


@pytest.mark.parametrize(
    ("changes", "programs", "words"),
    [
        ({"__PYTHON__": "/opt/bin/python-of-another-image"}, {}, "python-of-another-image: No such file or directory"),
        ({"__AGENT_SHA256__": "1" * 64}, {}, f"must be {'1' * 64}"),
        ({}, {"systemctl": 'echo "Failed to enable unit" >&2; exit 1'}, "Failed to enable unit"),
    ],
    ids=["an interpreter that the image lacks", "a zip with another digest", "a service manager that refuses"],
)
def test_a_step_that_fails_fails_the_stack_with_its_reason(bootstrap, server, changes, programs, words):
    bootstrap.replacements |= changes
    for name, body in programs.items():
        bootstrap.program(name, body)
    assert bootstrap.run().returncode == 1
    [signal] = signals(server)
    assert words in signal["Reason"]


def test_added_commands_run_before_the_agent_starts_and_what_they_change_stays_theirs(bootstrap, server):
    seen = bootstrap.root / "seen"
    bootstrap.replacements["\n__USER_DATA__\n"] = (
        f"\n{REPORT_FAILURE}\ncd {bootstrap.root}; set -- \"it's\" '$HOME `x`'\n"
        f"cat >{seen} <<EOF\n$1 $2 $(cat systemctl.calls 2>&1)\nEOF\nset +e; trap - ERR; home=/nowhere; exit 0\n"
    )
    done = bootstrap.run()
    assert (done.returncode, signals(server)) == (0, [])
    assert seen.read_text() == "it's $HOME `x` cat: systemctl.calls: No such file or directory\n"
    assert "restart deeplearning-agent.service" in (bootstrap.root / "systemctl.calls").read_text()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("false", "status 1 of: false"),
        ("true\ncat /no/such/file | cat\ntrue", "cat: /no/such/file: No such file or directory"),
        ("exit 3", "status 3 of: bash -eo pipefail"),
        ("if then", "syntax error near unexpected token"),
    ],
)
def test_a_command_that_fails_keeps_the_agent_from_starting_and_says_so(bootstrap, server, command, said):
    bootstrap.replacements["\n__USER_DATA__\n"] = f"\n{REPORT_FAILURE}\n{command}\n"
    assert bootstrap.run().returncode == 1
    [signal] = signals(server)
    assert signal["Status"] == "FAILURE"
    assert said in signal["Reason"]
    assert not (bootstrap.root / "systemctl.calls").exists()


def test_is_glue_only_and_leaves_most_of_user_data_free():
    text = (USERDATA / "bootstrap.sh").read_text()
    assert len(text.splitlines()) < 70
    words = set(text.split())
    assert not words & {"if", "for", "while", "until", "case", "jq", "awk", "sed", "grep"}
    assert len(text) + (USERDATA / "fetch_agent.py").stat().st_size < 10 * 1024


@pytest.mark.parametrize("script", ["bootstrap.sh", "emr_bootstrap.sh"])
def test_shellcheck_has_nothing_to_say(script):
    shellcheck = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([shellcheck, USERDATA / script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
