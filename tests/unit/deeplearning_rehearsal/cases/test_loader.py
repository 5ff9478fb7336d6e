"""Case files: all of the package's can be read, and what makes no sense is refused with file and key."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdk_rehearsal.embedded_aws.base.cloud_options import CloudOptions
from deeplearning_contract.names import ROLE_TAG
from deeplearning_rehearsal.cases.format.actions import ACTIONS
from deeplearning_rehearsal.cases.format.case import CaseError
from deeplearning_rehearsal.cases.format.case_file import find_case, list_cases, read_case
from deeplearning_rehearsal.cases.format.expectations import EXPECTATIONS, Expectations, list_asked
from deeplearning_rehearsal.cases.format.triggers import TRIGGERS
from deeplearning_rehearsal.cases.run.cloud_faults import add_faults, make_cloud_options
from deeplearning_rehearsal.software.kept_environments import KeptEnvironments
from tests.unit.deeplearning_rehearsal.trial import parse_trial

DEFAULT = CloudOptions()
GOOD = """
title = "A worker dies"
faults = [45]
expect = "trained"
job = "elastic"
arguments = ["--epochs", "3"]
context = { "workers.desired_capacity" = 3 }
minutes = 5

[cloud]
launch_faults = [{ code = "InsufficientInstanceCapacity", role = "worker", ordinals = [2, 3] }]
messages = ["duplicate"]

[[inject]]
when = "training commit 2 with 4 ranks"
do = "power_off"
target = "worker 2"
found_dead_after = "never"

[[inject]]
when = "+2.5 s"
do = "set_workers"
count = 4

[seen]
formed = 4
recovery_seconds_at_most = 15
"""
PROMISED = {
    "amazon-linux",
    "bad-image",
    "breaker",
    "capacity-none",
    "capacity-one-of-three",
    "cpu-master",
    "environment-build-fails",
    "environment-cache-corrupt",
    "environment-cache-denied",
    "environment-disk-full",
    "events-lost",
    "gpu-ecc",
    "gpu-missing",
    "gpu-slow",
    "launchers",
    "launchers-tensorflow-mxnet",
    "late-worker",
    "master-killed-after-publish",
    "master-killed-before-publish",
    "master-killed-training",
    "messages-disturbed",
    "name-contains-master",
    "node-rebooted",
    "poison-message",
    "quota",
    "sixty-four-nodes",
    "spot-notice",
    "user-data-twice",
    "worker-killed",
    "worker-killed-after-ready",
    "worker-killed-before-joining",
    "worker-silent",
    "zero-workers",
}

NO_ROWS = {
    "eks-data",
    "amazon-linux",
    "cpu-master",
    "data-corrupt",
    "data-disk-full",
    "data-on-lustre",
    "data-staged",
    "eks-file-system-addon-absent",
    "eks-greedy-job",
    "eks-image-gone",
    "eks-two-jobs",
    "emr-stop-after",
    "emr-stop-when-idle",
    "environment-build-fails",
    "environment-cache-corrupt",
    "environment-cache-denied",
    "environment-disk-full",
    "keras",
    "launchers",
    "launchers-tensorflow-mxnet",
    "mask-rcnn",
    "sagemaker-capacity",
    "sagemaker-data",
    "sagemaker-empty-channel",
    "sagemaker-image-without-sshd",
    "sagemaker-mount-target-absent",
    "sagemaker-quota",
    "sagemaker-same-name",
    "sagemaker-stop-resumes",
    "sagemaker-time-limit",
    "sagemaker-wrong-security-group",
    "sixty-four-nodes",
    "stop-after",
}
"""Jobs, their data and software, sizes, images, types, and refusals of services are no faults of the catalogue."""
ACTIONS_WITHOUT_A_CASE = {
    "restore": "A machine of which nothing is heard is replaced; tests of the lab restore one.",
    "fail_instance": "A machine that runs and is found dead: in cases it has lost its power before.",
}
CASES = [read_case(path) for path in list_cases()]
FORMED, TRAINED, FAILED = (f'title = "x"\nexpect = "{word}"\n' for word in ("formed", "trained", "failed"))
NOTHING_KEPT = KeptEnvironments(Path("/nonexistent"), None, print)


@pytest.mark.parametrize("path", list_cases(), ids=lambda path: path.stem)
def test_each_case_of_the_package_can_be_read_and_deployed(path: Path) -> None:
    case = read_case(path)
    assert case.name == path.stem
    assert case.faults or case.name in NO_ROWS
    assert isinstance(add_faults(make_cloud_options(), case, NOTHING_KEPT), CloudOptions)
    assert case.needs_synthesis


def test_the_promised_cases_are_there() -> None:
    assert {path.stem for path in list_cases()} >= PROMISED


def test_every_expectation_is_asked_by_a_case() -> None:
    asked = {key for case in CASES for key in list_asked(case.seen)}
    assert set(EXPECTATIONS) == asked


def test_every_action_and_every_trigger_has_a_case_or_a_reason_to_be_without() -> None:
    injections = [injection for case in CASES for injection in case.injections]
    assert set(ACTIONS) - {injection.do for injection in injections} == set(ACTIONS_WITHOUT_A_CASE)
    assert set(TRIGGERS) == {injection.when.kind for injection in injections}


def test_a_file_becomes_a_case() -> None:
    case = parse_trial(GOOD)
    assert (case.name, case.title, case.faults, case.is_elastic, case.minutes) == (
        "trial",
        "A worker dies",
        (45,),
        True,
        5.0,
    )
    first, second = case.injections
    assert (str(first), first.when.values) == ("power_off worker 2", {"commits": 2, "ranks": 4})
    assert first.options == {"found_dead_after": None}
    assert (str(second), second.when.values, second.options) == ("set_workers", {"seconds": 2.5}, {"count": 4})
    assert case.seen == Expectations(formed=4, accuracy_at_least=0.9, recovery_seconds_at_most=15.0)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (f'{TRAINED}context = {{ "workers.desired_capacity" = 2 }}', Expectations(formed=3, accuracy_at_least=0.9)),
        (f"{FORMED}nodes = 2\n[seen]\nformed = 1", Expectations(formed=1)),
        (f"{TRAINED}nodes = 2\n[seen]\naccuracy_at_least = 0.5", Expectations(formed=2, accuracy_at_least=0.5)),
        (f"{FAILED}nodes = 2", Expectations(stack="ROLLBACK_COMPLETE")),
    ],
)
def test_expectations_of_every_case_of_a_kind_need_no_key(text: str, seen: Expectations) -> None:
    assert parse_trial(text).seen == seen


def test_the_faults_of_the_cloud_reach_its_options() -> None:
    options = add_faults(make_cloud_options(key_pairs={"name": "key"}), parse_trial(GOOD), NOTHING_KEPT)
    (fault,) = options.faults
    worker, master = {ROLE_TAG: "worker"}, {ROLE_TAG: "master"}
    assert [fault.strikes(tags=worker, group="g", ordinal=number) for number in (1, 2, 3)] == [False, True, True]
    assert not fault.strikes(tags=master, group="g", ordinal=2)
    assert options.key_pairs == {"name": "key"}
    assert options.message_faults is not None
    assert (options.message_faults.duplicate, options.message_faults.reorder) == (True, False)


def test_without_a_case_the_cloud_behaves_as_aws() -> None:
    options = make_cloud_options()
    assert replace(options, label_instance=DEFAULT.label_instance, check_metric=DEFAULT.check_metric) == DEFAULT
    assert options.label_instance({ROLE_TAG: "master"}, "group") == "master"


def test_a_machine_is_found_dead_by_itself_unless_the_file_says_otherwise() -> None:
    case = parse_trial(GOOD.replace('found_dead_after = "never"\n', ""))
    assert case.injections[0].options["found_dead_after"] > 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "A worker dies"', "", "trial.toml: title must be given, it is a text"),
        ("faults = [45]", 'faults = ["45"]', "faults must be a list whose entries are each a whole number, got '45'"),
        ("minutes = 5", 'minutes = "5"', "minutes must be a number, got '5'"),
        (
            "minutes = 5",
            "hours = 5",
            "hours must be left out, nothing here reads it; the keys are after, alone,",
        ),
        (
            'expect = "trained"',
            'expect = "fine"',
            "expect must be one of trained, formed, failed, stopped, job, got 'fine'",
        ),
        ("[cloud]", "[cloud]\nspeed = 2", "cloud.speed must be left out, nothing here reads it"),
        ('code = "Ins', 'kode = "x", code = "Ins', "cloud.launch_faults[0].kode must be left out"),
        ('["duplicate"]', '["twice"]', "cloud.messages must hold only duplicate, reorder, lose_first, got ['twice']"),
        ("commit 2 with", "commit two with", "inject[0].when must be like"),
        ('"power_off"', '"explode"', "inject[0].do must be one of power_off, silence,"),
        ('"worker 2"', '"worker"', "inject[0].target must be master, or worker 2 for the second that was launched"),
        ('"worker 2"', '"worker 0"', "inject[0].target must be master, or worker 2 for the second that was launched"),
        ('"never"', '"later"', "inject[0].found_dead_after must be a number, got 'later'"),
        ('"never"', "-1", "inject[0].found_dead_after must be at least 0, or 'never', got -1"),
        ("count = 4", "", "inject[1].count must be given, it is a whole number"),
        ("count = 4", 'count = 4\ntarget = "master"', "inject[1].target must be left out, nothing here reads it"),
        ("count = 4", "count = true", "inject[1].count must be a whole number, got True"),
        ("formed = 4", "nodes = 4", "seen.nodes must be left out, nothing here reads it"),
        ("formed = 4", "replacement_joins = false", "seen.replacement_joins must be true or left out"),
        ("formed = 4", 'stack = "FINE"', "seen.stack must be one of CREATE_COMPLETE, ROLLBACK_COMPLETE, got 'FINE'"),
    ],
)
def test_a_wrong_key_or_value_is_refused_by_its_name(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(CaseError) as refused:
        parse_trial(GOOD.replace(old, new))
    assert str(refused.value).startswith("trial.toml: ")
    assert message in str(refused.value)


POISON = '[[inject]]\ndo = "send_poison"\nwhen = '


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{FORMED}[seen]\nformed = 1", "inject must be given unless [cloud], context or nodes make the case"),
        (
            f'{FORMED}nodes = 2\ncontext = {{ "workers.desired_capacity" = 1 }}\n[seen]\nformed = 2',
            "nodes must be left out with context.'workers.desired_capacity'",
        ),
        (f'{FORMED}nodes = 2\njob = "elastic"\n[seen]\nformed = 2', "job must be left out with expect = 'formed'"),
        (f'{FORMED}nodes = 2\nlaunchers = ["mpi"]\n[seen]\nformed = 2', "launchers must be left out: it needs job"),
        (
            'title = "x"\nexpect = "trained"\njob = "launchers"\nlaunchers = ["fly"]\nnodes = 2\n[seen]\nformed = 2',
            "mpi, torchrun, tf-ps, tf-multiworker, mxnet, keras, mask-rcnn, got ['fly']",
        ),
        (f'{FORMED}nodes = 2\narguments = ["a"]\n[seen]\nformed = 2', "arguments must be left out unless job"),
        (
            f'{TRAINED}job = "elastic"\ncontext = {{ "master.run_script" = "r" }}\n[seen]\nformed = 2',
            "context.'master.run_script' must be left out with job = 'elastic'",
        ),
        (f"{FORMED}[cloud]\nlose_answers = true\n[seen]", "seen must name at least one expectation"),
        (f"{FAILED}nodes = 2\n[seen]\nformed = 2", "seen.formed must be left out: it needs a cluster that forms"),
        (f"{FORMED}nodes = 2\n[seen]\naccuracy_at_least = 0.9", "it needs expect = 'trained'"),
        (f"{FAILED}nodes = 2\n[seen]\nwithin_seconds = 60", "seen.within_seconds must be left out"),
        (f"{FORMED}nodes = 2\n[seen]\nidentical_files = true", "it needs a cluster that forms, and an injection"),
        (
            f'{TRAINED}{POISON}"formed"\n[seen]\nrecovery_seconds_at_most = 1',
            "seen.recovery_seconds_at_most must be left out: it needs job = 'elastic' and an injection",
        ),
        (
            f'{TRAINED}{POISON}"training commit 1 with 2 ranks"\n[seen]\nformed = 2',
            "inject[0].when must not wait for training unless job = 'elastic'",
        ),
        (f'{TRAINED}{POISON}"+1 s"\n[seen]\nformed = 2', "inject[0].when must not be a pause"),
    ],
)
def test_a_case_that_contradicts_itself_is_refused(text: str, message: str) -> None:
    with pytest.raises(CaseError) as refused:
        parse_trial(text)
    assert message in str(refused.value)


def test_a_launch_fault_without_known_words_is_refused_with_its_file() -> None:
    case = parse_trial(GOOD.replace("InsufficientInstanceCapacity", "Whatever"))
    with pytest.raises(CaseError, match=r"trial.toml: cloud.launch_faults: message must be given for code Whatever"):
        add_faults(make_cloud_options(), case, NOTHING_KEPT)


def test_a_file_that_is_no_toml_is_refused_by_its_name(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("title = ")
    with pytest.raises(CaseError, match=r"broken.toml: cannot be read"):
        read_case(broken)


def test_a_case_is_found_by_name_or_by_path(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(GOOD)
    assert find_case("capacity-none").name == "capacity-none.toml"
    assert find_case(str(own)) == own


@pytest.mark.parametrize(
    ("name", "message"),
    [("capacity", "must be one of amazon-linux, bad-image,"), ("/nowhere/x.toml", "there is no such file")],
)
def test_an_unknown_case_is_reported(name: str, message: str) -> None:
    known: Any = find_case
    with pytest.raises(CaseError) as refused:
        known(name)
    assert message in str(refused.value)
