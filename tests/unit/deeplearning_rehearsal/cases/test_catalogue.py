"""Cases: all of the package's can be found and deployed, and what makes no sense is refused by name."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdk_rehearsal.embedded_aws.base.cloud_options import CloudOptions
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault
from deeplearning_contract.names import ROLE_TAG
from deeplearning_rehearsal.cases.case import WORKERS, CaseError, CloudFaults, Digits, Elastic, Launchers, case
from deeplearning_rehearsal.cases.loader import find_case, find_cases, find_file, list_cases
from deeplearning_rehearsal.cases.run.cloud_faults import add_faults, make_cloud_options
from deeplearning_rehearsal.software.kept_environments import KeptEnvironments

DEFAULT = CloudOptions()
NOTHING_KEPT = KeptEnvironments(Path("/nonexistent"), None, print)
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
    "eks-job-fails",
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
OWN = """
from deeplearning_rehearsal.cases.case import case

@case("Two nodes", expect="formed")
def two_nodes(run):
    assert run.finish().formed == 2

@case("Three nodes", expect="formed", workers=2)
def three_nodes(run):
    run.finish()
"""


def nothing(run):
    run.finish()


@pytest.mark.parametrize("chosen", list_cases(), ids=lambda chosen: chosen.name)
def test_each_case_of_the_package_can_be_found_and_deployed(chosen):
    assert find_case(chosen.reference) is chosen
    assert find_file(chosen).parent.name == "catalogue"
    assert chosen.faults or chosen.name in NO_ROWS
    assert isinstance(add_faults(make_cloud_options(), chosen, NOTHING_KEPT), CloudOptions)
    assert chosen.needs_synthesis


def test_the_promised_cases_are_there_and_have_names_of_their_own():
    names = [chosen.name for chosen in list_cases()]
    assert set(names) >= PROMISED
    assert len(names) == len(set(names))


def test_a_function_becomes_a_case():
    made = case("x", workers=3, min_capacity=1, context={"a": 1}, job=Elastic(epochs=3))(nothing)
    assert (made.name, made.context) == ("nothing", {"workers.desired_capacity": 3, "workers.min_capacity": 1, "a": 1})
    assert (made.formed_nodes, made.needs_synthesis, made.is_elastic) == (4, True, True)
    assert list(made.job.arguments) == ["--epochs", "3", "--batch-seconds", "0.4"]  # type: ignore[union-attr]
    assert replace(made, formed=2).formed_nodes == 2
    assert case("x", workers=3, expect="failed")(nothing).formed_nodes is None
    assert not case("x")(nothing).needs_synthesis


@pytest.mark.parametrize(
    ("keys", "expect", "software"),
    [
        ({}, "counted", "none"),
        ({"context": {"software.environment": "horovod"}}, "counted", "horovod"),
        ({"expect": "failed"}, "failed", "none"),
        ({"context": {"platform": "eks"}, "expect": "failed"}, "failed", None),
        ({"job": Digits()}, "trained", None),
        ({"job": Digits(keys={"retries": 1}), "expect": "job"}, "job", None),
    ],
)
def test_nodes_make_software_only_for_a_job_that_trains_or_where_a_case_names_it(keys, expect, software):
    def judge(run):
        assert run.finish()

    made = case("x", **keys)(judge)
    assert (made.expect, made.stack_context.get("software.environment")) == (expect, software)


def test_the_faults_of_the_cloud_reach_its_options():
    fault = LaunchFault("InsufficientInstanceCapacity", tags=WORKERS, ordinals=frozenset({2, 3}))
    made = case("x", cloud=CloudFaults(launch_faults=[fault], messages=["duplicate"]))(nothing)
    options = add_faults(make_cloud_options(key_pairs={"name": "key"}), made, NOTHING_KEPT)
    assert options.faults == (fault,)
    assert [fault.strikes(tags=WORKERS, group="g", ordinal=number) for number in (1, 2, 3)] == [False, True, True]
    assert not fault.strikes(tags={ROLE_TAG: "master"}, group="g", ordinal=2)
    assert options.key_pairs == {"name": "key"}
    assert options.message_faults is not None
    assert (options.message_faults.duplicate, options.message_faults.reorder) == (True, False)


def test_without_a_case_the_cloud_behaves_as_aws():
    options = make_cloud_options()
    assert replace(options, label_instance=DEFAULT.label_instance, check_metric=DEFAULT.check_metric) == DEFAULT
    assert options.label_instance({ROLE_TAG: "master"}, "group") == "master"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"hours": 5}, "case nothing: got an unexpected keyword argument 'hours'"),
        (
            {"expect": "fine"},
            "case nothing: expect must be one of trained, counted, formed, failed, stopped, job, got 'fine'",
        ),
        ({"expect": "formed", "job": Elastic(epochs=3)}, "job must be left out with expect = 'formed'"),
        ({"expect": "failed", "job": Launchers()}, "job must be left out with expect = 'failed'"),
        ({"expect": "counted", "job": Digits()}, "job must be left out with expect = 'counted'"),
        ({"expect": "trained"}, "job must be given with expect = 'trained', got none; write job=Digits()"),
        ({"job": Elastic(epochs=3), "context": {"master.run_script": "r"}}, "'master.run_script' must be left out"),
        ({"expect": "job"}, "the function must assert something; expect = 'job' promises nothing"),
    ],
)
def test_a_case_that_contradicts_itself_is_refused_by_its_name(keys, message):
    with pytest.raises(CaseError) as refused:
        case("x", **keys)(nothing)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CloudFaults(messages=["twice"]), "cloud.messages must hold only duplicate, reorder, lose_first"),
        (lambda: Launchers(["fly"]), "mpi, torchrun, tf-ps, tf-multiworker, mxnet, keras, mask-rcnn, got ['fly']"),
        (lambda: LaunchFault("Whatever"), "message must be given for code Whatever"),
    ],
)
def test_a_part_of_a_case_that_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the message is read below
        make()
    assert message in str(refused.value)


def test_cases_are_found_by_name_or_in_a_file(tmp_path):
    own = tmp_path / "own.py"
    own.write_text(OWN)
    assert find_case("capacity-none").name == "capacity-none"
    assert [found.name for found in find_cases(str(own))] == ["two-nodes", "three-nodes"]
    (second,) = find_cases(f"{own}::three-nodes")
    assert (second.reference, second.formed_nodes, find_file(second)) == (f"{own}::three-nodes", 3, own)
    assert find_case(second.reference).title == "Three nodes"


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (None, "capacity", "--case must be one of "),
        (None, "{file}", "there is no such file"),
        ("def x(:", "{file}", "own.py must be imported, it ends with SyntaxError: "),
        ("import nothing_of_that_name", "{file}", "own.py must be imported, it ends with ModuleNotFoundError: "),
        ("x = 1", "{file}", "its cases are: none"),
        (OWN, "{file}::four-nodes", "its cases are: two-nodes, three-nodes"),
        (OWN.replace("expect", "expects"), "{file}", "own.py: case two-nodes: got an unexpected keyword"),
    ],
)
def test_a_case_that_cannot_be_found_is_refused(text, name, message, tmp_path):
    if text is not None:
        (tmp_path / "own.py").write_text(text)
    with pytest.raises(CaseError) as refused:
        find_cases(name.format(file=tmp_path / "own.py"))
    assert message in str(refused.value)


def test_the_case_of_the_tutorial_can_be_found(tmp_path):
    page = (Path(__file__).parents[4] / "docs/tutorials/rehearse.md").read_text()
    (tmp_path / "my_cases.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    (found,) = find_cases(str(tmp_path / "my_cases.py"))
    assert (found.name, found.formed_nodes) == ("idle-worker-dies", 3)
