"""Cloud assemblies: those that are none, and the messages that an app left in one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_sqs as sqs

from cdk_rehearsal import main as cdk_rehearse
from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.manifest import read_manifest, read_messages, require_no_errors
from cdk_rehearsal.run.progress import report_warnings
from deeplearning_cli import main as deeplearning_cdk

STACK = {"type": "aws:cloudformation:stack", "properties": {"templateFile": "s.template.json"}}
COMMANDS = (
    lambda folder: cdk_rehearse.main([str(folder)]),
    lambda folder: cdk_rehearse.main([str(folder), "--orders", "1"]),
    lambda folder: deeplearning_cdk.main(["rehearse", str(folder)]),
    lambda folder: deeplearning_cdk.main(["rehearse", str(folder), "--orders", "1"]),
    lambda folder: deeplearning_cdk.main(["changes", "--assembly", str(folder), "--region", "eu-west-1"]),
)


def _write(folder, manifest):
    folder.mkdir()
    (folder / "manifest.json").write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    return folder


def _is_nowhere(folder):
    return folder / "nope"


def _is_a_file(folder):
    (folder / "app.py").touch()
    return folder / "app.py"


def _is_an_empty_folder(folder):
    return folder


def _is_a_browsers_manifest(folder):
    return _write(folder / "web", {"name": "a page", "icons": []})


def _is_half_written(folder):
    return _write(folder / "half", '{"version": "55')


def _is_of_another_format(folder):
    return _write(folder / "next", {"version": "99.0.0", "artifacts": {"s": {**STACK, "properties": {"template": 1}}}})


def _has_lost_its_template(folder):
    return _write(folder / "lost", {"version": "55.0.0", "artifacts": {"s": STACK}})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_is_nowhere, "assembly must be the folder of a synthesized app, got {0}, which does not exist; run: CDK_OUT"),
        (_is_a_file, "assembly must be the folder of a synthesized app, got {0}, which is no folder; run: CDK_OUT"),
        (_is_an_empty_folder, "got {0}, which has no manifest.json; run: CDK_OUTDIR={0} python app.py, or: cdk synth"),
        (_is_a_browsers_manifest, "{0}/manifest.json must list the artifacts of an app, it lists none; synth"),
        (_is_half_written, "{0}/manifest.json must be JSON: Unterminated string"),
        (
            _is_of_another_format,
            "artifact s of {0}/manifest.json must have a templateFile, it has none in version 99.0",
        ),
        (_has_lost_its_template, "assembly must have {0}/s.template.json: No such file or directory; synthesize again"),
    ],
)
def test_every_command_refuses_what_is_no_assembly_in_the_same_words(make, message, tmp_path, capsys):
    folder = make(tmp_path)
    said = set()
    for command in COMMANDS:
        assert command(folder) == 2
        said.add(capsys.readouterr().err.partition(": ")[2])
    (line,) = said
    assert message.format(folder) in line
    assert "Errno" not in line


def test_the_remedy_for_an_app_without_a_folder_of_its_own_writes_the_assembly(tmp_path):
    (tmp_path / "app.py").write_text('import aws_cdk as cdk\napp = cdk.App()\ncdk.Stack(app, "s")\napp.synth()\n')
    folder = tmp_path / "cdk.out"
    with pytest.raises(AssemblyError) as caught:
        read_manifest(folder)
    command = str(caught.value).partition("run: ")[2].partition(",")[0]
    search_path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["sh", "-c", command], cwd=tmp_path, env={**os.environ, "PATH": search_path}, check=True)
    assert "s" in read_manifest(folder)["artifacts"]


Notes = Sequence[Callable[[cdk.Annotations], None]]


def _synthesize(folder, stacks):
    """Synthesize an app with a queue with notes in each stack; a name such as `Prod/training` is that of a stage."""
    app = cdk.App(outdir=str(folder), analytics_reporting=False, builtin_cloud_formation_validation=False)
    for name, notes in stacks.items():
        stage, _, own = name.rpartition("/")
        queue = sqs.CfnQueue(cdk.Stack(cdk.Stage(app, stage) if stage else app, own), "Queue")
        for note in notes:
            note(cdk.Annotations.of(queue))
    app.synth()
    return folder


def _warn(text):
    return lambda annotations: annotations.add_warning_v2("trial:id", text)


def test_warnings_are_printed_once_with_their_construct_and_those_of_stages_too(tmp_path, capsys):
    notes = (_warn("costs\nmoney"), lambda annotations: annotations.add_info("all is well"))
    folder = _synthesize(tmp_path / "out", {"Prod/training": (_warn("never stops"),), "plain": notes})
    report_warnings(folder, [])
    plain = "warning of the app: /plain/Queue: costs money [ack: trial:id]\n"
    staged = "warning of the app: /Prod/training/Queue: never stops [ack: trial:id]\n"
    assert capsys.readouterr().err == staged + plain
    for name, line in (("plain", plain), ("Prod/training", staged), ("Prod-training", staged)):
        report_warnings(folder, [name])
        assert capsys.readouterr().err == line


def test_warnings_within_a_manifest_are_read_as_those_of_a_file_are(tmp_path):
    """aws-cdk-lib wrote them there before it had `additionalMetadataFile`."""
    warning = {"type": "aws:cdk:warning", "data": "costs money"}
    artifact = {**STACK, "metadata": {"/s/Queue": [warning, {"type": "aws:cdk:logicalId", "data": "Queue"}, warning]}}
    folder = _write(tmp_path / "out", {"version": "36.0.0", "artifacts": {"s": artifact}})
    assert [str(message) for message in read_messages(folder, ["s"])] == ["/s/Queue: costs money"]


def test_a_stack_with_an_error_of_the_app_is_refused_as_the_cdk_cli_refuses_it(tmp_path):
    """`cdk deploy` ends with "Found errors" for the chosen stacks alone (aws-cdk-cli, `validateStacksMetadata`)."""
    folder = _synthesize(
        tmp_path / "out", {"good": (_warn("costs"),), "bad": (lambda annotations: annotations.add_error("is broken"),)}
    )
    with pytest.raises(AssemblyError, match=r"reports 1 errors, with which `cdk deploy` .*:\n  /bad/Queue: is broken$"):
        require_no_errors(folder, ["bad"])
    assert [str(warning) for warning in require_no_errors(folder, ["good"])] == ["/good/Queue: costs [ack: trial:id]"]
