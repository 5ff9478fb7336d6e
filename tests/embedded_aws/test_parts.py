"""The small parts: operation names, wait-condition handles, rates, faults, victims and the function's process."""

import json
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from urllib.parse import urlsplit

import pytest

from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError, LaunchFault
from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.base.request import SignedRequest, name_operation
from cdk_rehearsal.embedded_aws.base.scaling_group import GroupInstance, ScalingGroup
from cdk_rehearsal.embedded_aws.base.signals import PresignedUrls, SignalHandle, WaitCondition
from cdk_rehearsal.embedded_aws.ec2.launcher import collect_tags
from cdk_rehearsal.embedded_aws.functions import environment as execution
from cdk_rehearsal.embedded_aws.functions.environment import ExecutionEnvironment, Function
from cdk_rehearsal.embedded_aws.functions.interpreters import Interpreters
from cdk_rehearsal.embedded_aws.messaging.cron import Cron
from cdk_rehearsal.embedded_aws.messaging.event_bus import parse_rate
from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.place import Place
from tests.real_time import GENEROUS_SECONDS


@pytest.mark.parametrize(
    ("request_parts", "name"),
    [
        (("sqs", "POST", "/", "", "AmazonSQS.SendMessage", b"{}"), "SendMessage"),
        (("autoscaling", "POST", "/", "", "", b"Action=SetDesiredCapacity&Version=2011-01-01"), "SetDesiredCapacity"),
        (("s3", "GET", "/bucket/a/b.zip", "", "", b""), "GetObject"),
        (("s3", "GET", "/bucket", "list-type=2", "", b""), "ListObjectsV2"),
        (("s3", "HEAD", "/bucket/key", "", "", b""), "HeadObject"),
        (
            ("elasticfilesystem", "GET", "/2015-02-01/mount-targets", "FileSystemId=fs-1", "", b""),
            "DescribeMountTargets",
        ),
        (("s3", "PUT", "/bucket/key", "", "", b""), "PutObject"),
        (("s3", "DELETE", "/bucket/key", "", "", b""), "DeleteObject"),
        (("s3", "POST", "/bucket/key", "uploads", "", b""), "CreateMultipartUpload"),
        (("s3", "PUT", "/bucket/key", "partNumber=1&uploadId=u", "", b""), "UploadPart"),
        (("s3", "POST", "/bucket/key", "uploadId=u", "", b""), "CompleteMultipartUpload"),
        (("s3", "DELETE", "/bucket/key", "uploadId=u", "", b""), "AbortMultipartUpload"),
        (("nonsense", "GET", "/", "", "", b""), "Unknown"),
    ],
)
def test_names_the_operation_of_a_request(request_parts, name):
    service, method, path, query, target, body = request_parts
    headers = {"x-amz-target": target} if target else {}
    assert name_operation(service, SignedRequest(method, path, query, headers, body)) == name


def test_a_copy_within_s3_is_no_upload():
    """S3 API Reference, "CopyObject": it needs a right to the source, which its path does not name."""
    headers = {"x-amz-copy-source": "/secret/key"}
    assert name_operation("s3", SignedRequest("PUT", "/bucket/key", "", headers, b"")) == "CopyObject"
    part = SignedRequest("PUT", "/bucket/key", "partNumber=1&uploadId=u", headers, b"")
    assert name_operation("s3", part) == "UploadPartCopy"


@pytest.fixture
def handle():
    """Return a handle, and a function that signals it through its URL."""
    presigned, found = PresignedUrls(Observations(None)), SignalHandle(Observations(None))
    url = presigned.open(Place("123456789012", "us-east-1", "http://10.0.0.1:80"), "waitcondition", "x/Handle", found)
    assert presigned.find(url) is found
    parts = urlsplit(url)

    def signal(**content):
        return presigned.answer("PUT", parts.path, parts.query, {}, json.dumps(content).encode())[0]

    return found, signal


def test_fails_on_the_first_failure_whatever_came_before(handle):
    found, signal = handle
    condition = WaitCondition(found, count=2, timeout=3600)
    assert condition.settle() is None
    signal(Status="SUCCESS", UniqueId="a", Reason="", Data="1")
    signal(Status="SUCCESS", UniqueId="a", Reason="", Data="2")
    assert condition.settle() is None
    signal(Status="FAILURE", UniqueId="b", Reason="it's broken", Data="")
    assert condition.settle().reason == "WaitCondition received failed message: 'it's broken' for uniqueId: b"


def test_counts_each_unique_id_once(handle):
    found, signal = handle
    condition = WaitCondition(found, count=2, timeout=3600)
    for name in ("a", "a", "b"):
        signal(Status="SUCCESS", UniqueId=name, Reason="", Data=f"data {name}")
    assert condition.settle().reason == ""
    assert json.loads(condition.attribute()) == {"a": "data a", "b": "data b"}


@pytest.mark.parametrize(
    "content",
    [
        {"Status": "SUCCESS", "UniqueId": "a", "Reason": "x" * 4097, "Data": ""},
        {"Status": "MAYBE", "UniqueId": "a"},
        {"Status": "SUCCESS", "UniqueId": ""},
        {"Status": "SUCCESS", "UniqueId": "a", "Data": {"not": "text"}},
    ],
)
def test_accepts_and_ignores_an_invalid_signal(handle, content):
    found, signal = handle
    assert signal(**content) == 200
    assert found.signals == ()


@pytest.mark.parametrize(
    ("expression", "minutes"), [("rate(1 minute)", 1), ("rate(5 minutes)", 5), ("rate(2 hours)", 120)]
)
def test_reads_rates(expression, minutes):
    assert parse_rate(expression) == minutes


@pytest.mark.parametrize("expression", ["at(2030-01-01T00:00:00)", "rate(0 minutes)", "rate(1 fortnight)"])
def test_refuses_other_schedules(expression):
    with pytest.raises(AssemblyError, match=r"ScheduleExpression must be rate\(n minutes\) or cron"):
        parse_rate(expression)


@pytest.mark.parametrize(
    ("expression", "due", "not_due"),
    [
        ("cron(0 10 * * ? *)", "2026-11-27 10:00", "2026-11-27 10:01"),
        ("cron(15 12 * * ? *)", "2026-11-27 12:15", "2026-11-27 00:15"),
        ("cron(0 18 ? * MON-FRI *)", "2026-11-27 18:00", "2026-11-28 18:00"),
        ("cron(0 8 1 * ? *)", "2026-12-01 08:00", "2026-12-02 08:00"),
        ("cron(0/15 * * * ? *)", "2026-11-27 10:45", "2026-11-27 10:50"),
        ("cron(0/5 8-17 ? * 2-6 *)", "2026-11-27 17:55", "2026-11-29 17:55"),
        ("cron(0 0 ? JAN,JUL SUN 2027)", "2027-07-04 00:00", "2026-07-05 00:00"),
    ],
)
def test_a_cron_expression_comes_due_at_its_minutes(expression, due, not_due):
    """EventBridge user guide, "Cron expressions": the first six are of its table, the week begins on Sunday."""
    assert Cron(expression).is_due(datetime.fromisoformat(due))
    assert not Cron(expression).is_due(datetime.fromisoformat(not_due))


@pytest.mark.parametrize(
    "expression",
    [
        *("cron(0 10 * * * *)", "cron(0 10 ? * ? *)", "cron(0 10 * * ?)", "cron(60 10 * * ? *)", "cron(0/0 * * * ? *)"),
        *("cron(0 0 L * ? *)", "cron(0 0 ? * 3#2 *)", "cron(0 0 1 SMARCH ? *)", "cron(9-5 0 * * ? *)", "cron()"),
    ],
)
def test_refuses_what_is_no_cron_expression_or_not_known(expression):
    with pytest.raises(AssemblyError, match="ScheduleExpression must be a rate or a cron expression"):
        Cron(expression)


def test_strikes_the_chosen_launches_only():
    worker = {"role": "worker"}
    fault = LaunchFault("InsufficientInstanceCapacity", tags=worker, ordinals=frozenset({2, 3}))
    struck = [number for number in range(1, 6) if fault.strikes(tags=worker | {"more": "1"}, group="g", ordinal=number)]
    assert struck == [2, 3]
    assert not fault.strikes(tags={"role": "master"}, group="g", ordinal=2)
    rest = LaunchFault("InsufficientInstanceCapacity", from_ordinal=3)
    assert [number for number in range(1, 6) if rest.strikes(tags={}, group="g", ordinal=number)] == [3, 4, 5]
    assert "p4d.24xlarge" in fault.to_error(instance_type="p4d.24xlarge", zone="us-east-1a").message


def test_needs_a_message_for_a_code_that_it_has_no_words_for():
    with pytest.raises(ValueError, match="message must be given for code Strange"):
        LaunchFault("Strange")


def make_group(**changes):
    """Return a group without instances."""
    return ScalingGroup(
        **{
            "name": "group",
            "arn": "arn",
            "min_size": 0,
            "max_size": 4,
            "desired": 3,
            "launch_template_id": "lt-1",
            "launch_template_name": "template",
            "launch_template_version": "1",
            "subnet_ids": ("subnet-1",),
            "tags": (),
            "zones": ("us-east-1a",),
        }
        | changes
    )


@pytest.mark.parametrize(("policy", "victims"), [("Default", ["i-1"]), ("NewestInstance", ["i-2"])])
def test_scales_in_by_policy_and_spares_the_protected_and_the_dying(policy, victims):
    group = make_group(termination_policies=(policy,))
    begin = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for number in range(4):
        launched = begin + timedelta(minutes=number)
        group.instances.append(GroupInstance(f"i-{number}", "c5.large", "us-east-1a", launched, "InService"))
    group.instances[0].protected = True
    group.instances[3].lifecycle_state = "Terminating"

    assert [entry.instance_id for entry in group.choose_victims(1)] == victims


def test_refuses_a_tag_that_instance_metadata_cannot_show():
    assert collect_tags({}, {"team/name": "x"}) == {"team/name": "x"}
    with pytest.raises(LaunchError, match="'team/name' is not a valid tag key"):
        collect_tags({"MetadataOptions": {"InstanceMetadataTags": "enabled"}}, {"team/name": "x"})


@pytest.fixture
def environment(tmp_path):
    """Return a function that starts an execution environment for a handler's source; all are closed."""
    environments = []
    interpreters = Interpreters(tmp_path)

    def start(source, timeout=GENEROUS_SECONDS):
        code = interpreters.find_code(f"code{len(environments)}")
        code.mkdir()
        (code / "module.py").write_text(source)
        variables = {
            "_HANDLER": "module.handle",
            "LAMBDA_TASK_ROOT": str(code),
            "AWS_LAMBDA_FUNCTION_NAME": "function",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128",
            "AWS_LAMBDA_LOG_STREAM_NAME": "stream",
        }
        function = Function("function", "arn", timeout, variables, code, "python3.13")
        environments.append(ExecutionEnvironment(function, interpreters))
        return environments[-1]

    yield start
    for entry in environments:
        entry.close()


def test_keeps_a_warm_environments_memory_and_separates_its_logs(environment):
    warm = environment("n = 0\ndef handle(event, context):\n global n\n n += 1\n print('call', n)\n return n + event")
    first, second = warm.invoke(10), warm.invoke(20)
    assert (first.result, second.result) == (11, 22)
    assert (first.log, second.log) == ("call 1\n", "call 2\n")


def test_shows_the_function_boto3_and_none_of_this_environments_other_packages(environment):
    source = "import boto3, importlib.util as u\ndef handle(e, c):\n return [n for n in e if u.find_spec(n)]"
    seen = environment(source).invoke(["boto3", "moto", "pytest", "deeplearning_contract", "deeplearning_rehearsal"])
    assert (seen.result, seen.error) == (["boto3"], "")


def test_kills_a_function_at_its_timeout(environment):
    stuck = environment("import time\ndef handle(event, context):\n time.sleep(600)", timeout=1.0)
    assert stuck.invoke({}).error == "Task timed out after 1.00 seconds"
    assert not stuck.alive


def test_loading_the_handler_does_not_count_as_the_functions_time(environment, monkeypatch):
    """Lambda Developer Guide, "Understanding the Lambda execution environment lifecycle"."""
    source = "import time\ntime.sleep({})\ndef handle(event, context):\n return context.get_remaining_time_in_millis()"
    slow = environment(source.format(2.5), timeout=2.0)
    assert 0 < slow.invoke({}).result <= 2000
    assert 0 < slow.invoke({}).result <= 2000
    monkeypatch.setattr(execution, "INIT_SECONDS", 0.1)
    late = environment(source.format(0.5), timeout=60.0)
    assert 59_000 < late.invoke({}).result <= 60_000
    stuck = environment(source.format(600), timeout=0.1)
    assert stuck.invoke({}).error == "Task timed out after 0.10 seconds"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def handle(event, context):\n raise ValueError('no')", "ValueError: no"),
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("def other(): pass", "AttributeError: module 'module' has no attribute 'handle'"),
        ("import os\ndef handle(event, context):\n os._exit(3)", "Runtime exited with error: exit status 3"),
    ],
)
def test_tells_why_an_invocation_failed(environment, source, error):
    assert environment(source).invoke({}).error == error


def test_logs_warnings_as_the_real_runtime_does(environment):
    source = "import logging\ndef handle(event, context):\n logging.info('quiet')\n logging.warning('loud')"
    log = environment(source).invoke({}).log
    assert "loud" in log
    assert "quiet" not in log


def test_is_imported_without_patching_moto():
    program = (
        "from moto.sqs.models import SQSBackend as before; f = before.send_message\n"
        "import cdk_rehearsal.embedded_aws\n"
        "assert before.send_message is f"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
