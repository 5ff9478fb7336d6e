"""The one file that fetches the agent: its signature is botocore's, and every failure says what happened."""

import ast
import hashlib
import json
import sys
from pathlib import Path

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from deeplearning_contract.messages import NodeReport, ReportStage

SOURCE = Path(__file__).parents[3] / "userdata" / "fetch_agent.py"
SECRETS = ("AKIDEXAMPLE", "secret/key", "session+token=")


def signed_by_botocore(monkeypatch, now, signer, request):
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: now.replace(tzinfo=None))
    signer.add_auth(request)
    return request.headers["Authorization"]


@pytest.mark.parametrize("key", ["agent.zip", "a b/ü+~'(1)=&.zip"])
@pytest.mark.parametrize(
    "place",
    [("", "bucket.s3.cn-north-1.amazonaws.com.cn"), ("http://127.0.0.1:4566/", "127.0.0.1:4566")],
)
def test_signs_a_get_of_s3_as_botocore_does(fetch_agent, monkeypatch, now, key, place):
    endpoint, host = place
    url = fetch_agent.object_url("bucket", key, endpoint, "cn-north-1.amazonaws.com.cn")
    headers = fetch_agent.sign("GET", url, "cn-north-1", "s3", SECRETS, now)
    signer = S3SigV4Auth(Credentials(*SECRETS), "s3", "cn-north-1")
    assert headers["host"] == host
    assert headers["Authorization"] == signed_by_botocore(monkeypatch, now, signer, AWSRequest("GET", url))


def test_signs_a_message_to_sqs_as_botocore_does(fetch_agent, monkeypatch, now):
    kind = {"content-type": "application/x-amz-json-1.0", "x-amz-target": "AmazonSQS.SendMessage"}
    url, body = "https://sqs.eu-west-1.amazonaws.com/", b'{"QueueUrl":"q"}'
    headers = fetch_agent.sign(
        "POST", url, "eu-west-1", "sqs", SECRETS, now, body, **{k.replace("-", "_"): v for k, v in kind.items()}
    )
    request = AWSRequest("POST", url, headers=kind, data=body)
    signer = SigV4Auth(Credentials(*SECRETS), "sqs", "eu-west-1")
    assert headers["Authorization"] == signed_by_botocore(monkeypatch, now, signer, request)


def test_names_objects_by_path_where_tls_would_not_match_the_bucket(fetch_agent):
    url = fetch_agent.object_url("my.bucket", "k", "", "eu-west-1.amazonaws.com")
    assert url == "https://s3.eu-west-1.amazonaws.com/my.bucket/k"


def test_fetches_unpacks_and_does_nothing_the_second_time(fetch_agent, aws, make_zip, metadata, tmp_path):
    data = make_zip({"deeplearning_agent/__main__.py": "print(1)"})
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="assets", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    s3.put_object(Bucket="assets", Key="agent.zip", Body=data)
    target = tmp_path / "agent"
    arguments = ["assets", "agent.zip", hashlib.sha256(data).hexdigest(), "eu-west-1", str(target)]
    fetch_agent.main(arguments)
    assert (target / "deeplearning_agent/__main__.py").read_text() == "print(1)"
    asked = len(metadata.requests)
    fetch_agent.main(arguments)
    assert len(metadata.requests) == asked
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]


def test_another_digest_replaces_the_folder_whole(fetch_agent, make_zip, tmp_path):
    fetch_agent.unpack(make_zip({"old.py": "", "both.py": "old"}), "1" * 64, tmp_path / "agent")
    fetch_agent.unpack(make_zip({"both.py": "new"}), "2" * 64, tmp_path / "agent")
    assert sorted(path.name for path in (tmp_path / "agent").iterdir()) == [".sha256", "both.py"]
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]


@pytest.mark.parametrize("name", ["../evil.py", "/etc/evil", "a/../../evil"])
def test_refuses_a_zip_that_leaves_its_folder(fetch_agent, make_zip, tmp_path, name):
    with pytest.raises(ValueError, match="only paths below it"):
        fetch_agent.unpack(make_zip({"good.py": "", name: "x"}), "1" * 64, tmp_path / "agent")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_digest_is_refused_at_once(fetch_agent, server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    server.answers["/assets/agent.zip"] = [(200, b"something else")]
    with pytest.raises(ValueError, match=r"sha256 of s3://assets/agent.zip must be 111.*; deploy again"):
        fetch_agent.retry(lambda: fetch_agent.fetch("assets", "agent.zip", "1" * 64, "eu-west-1"), pytest.fail)


@pytest.mark.fault(42)
def test_a_refusal_is_shown_in_the_words_of_s3(fetch_agent, server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    server.answers["/assets/agent.zip"] = [(403, b"<Error><Code>AccessDenied</Code></Error>")]
    pauses = []
    with pytest.raises(OSError, match="403 Forbidden: <Error><Code>AccessDenied") as raised:
        fetch_agent.retry(lambda: fetch_agent.fetch("assets", "agent.zip", "1" * 64, "eu-west-1"), pauses.append)
    assert pauses == [1, 2, 4, 8, 16, 32]
    assert "Signature" not in str(raised.value)


@pytest.mark.fault(41)
@pytest.mark.parametrize("trouble", [(500, b"oops"), (503, b"SlowDown"), (None, b"")])
def test_trouble_that_passes_is_waited_out(fetch_agent, server, monkeypatch, trouble):
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    server.answers["/assets/agent.zip"] = [trouble, trouble, (200, b"zip")]
    digest, pauses = hashlib.sha256(b"zip").hexdigest(), []
    assert (
        fetch_agent.retry(lambda: fetch_agent.fetch("assets", "agent.zip", digest, "eu-west-1"), pauses.append)
        == b"zip"
    )
    assert pauses == [1, 2]


@pytest.mark.fault(41)
def test_a_reset_that_stays_is_a_clear_error(fetch_agent, server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    server.answers["/assets/agent.zip"] = [(None, b"")]
    with pytest.raises(OSError, match=r"GET .*/assets/agent.zip: no response"):
        fetch_agent.retry(lambda: fetch_agent.fetch("assets", "agent.zip", "1" * 64, "eu-west-1"), lambda _: None)


@pytest.mark.fault(53)
def test_credentials_that_come_late_are_waited_for(fetch_agent, metadata):
    path = "/latest/meta-data/iam/security-credentials/node-role"
    metadata.answers[path] = [(404, b""), (200, b'{"Code":"Failed"}'), *metadata.answers[path]]
    assert fetch_agent.retry(fetch_agent.read_credentials, lambda _: None) == SECRETS


def test_asks_the_metadata_service_for_the_domain_of_the_partition(fetch_agent, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    asked = []
    real = fetch_agent.WEB.open

    def open_web(request, timeout):
        if "169.254" in request.full_url or "127.0.0.1" in request.full_url:
            return real(request, timeout=timeout)
        asked.append(request.full_url)
        raise OSError("stopped before the network")

    monkeypatch.setattr(fetch_agent.WEB, "open", open_web)
    with pytest.raises(OSError, match="stopped before the network"):
        fetch_agent.fetch("assets", "agent.zip", "1" * 64, "cn-north-1")
    assert asked == ["https://assets.s3.cn-north-1.amazonaws.com.cn/agent.zip"]


@pytest.mark.parametrize("address", ["file:///etc/hostname", "ftp://127.0.0.1/agent.zip", "data:,agent"])
def test_opens_nothing_but_the_web(fetch_agent, address):
    with pytest.raises(OSError, match="must be HTTP or HTTPS"):
        fetch_agent.send(address, {})


@pytest.fixture
def failed_node(tmp_path, server):
    """Write what a node has when its bootstrap fails; return the arguments that report it."""

    def write(**changes):
        settings = {"cluster": "c", "role": "master", "region": "eu-west-1", "signal_url": f"{server.url}/signal"}
        settings |= {"report_queue_url": f"{server.url}/1/reports", **changes}
        (tmp_path / "settings.json").write_text(json.dumps(settings))
        (tmp_path / "log").write_text("x" * 5000 + "\nfirst\nlast words\n")
        return ["--failure", str(tmp_path / "settings.json"), str(tmp_path / "log"), "status 1 of: python3"]

    return write


@pytest.mark.defect("D42")
def test_a_failure_of_the_master_reaches_cloudformation(fetch_agent, failed_node, server):
    server.answers["/signal"] = [(200, b"")]
    fetch_agent.main(failed_node())
    [(method, _, headers, body)] = server.requests
    signal = json.loads(body)
    assert (method, headers["Content-Type"], signal["Status"], signal["UniqueId"]) == ("PUT", "", "FAILURE", "c")
    assert signal["Reason"].startswith("bootstrap failed on master ")
    assert "status 1 of: python3" in signal["Reason"]
    assert signal["Reason"].endswith("first | last words")
    assert len(signal["Reason"]) <= 1000


def test_a_failure_of_the_master_needs_no_instance_metadata(fetch_agent, failed_node, server, metadata):
    metadata.answers.clear()
    server.answers["/signal"] = [(200, b"")]
    fetch_agent.main(failed_node())
    assert len(server.requests) == 1


def test_a_failure_of_a_worker_reaches_the_master_as_a_report(fetch_agent, failed_node, aws, monkeypatch):
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName="bootstrap-reports")["QueueUrl"]
    fetch_agent.main(failed_node(role="worker", signal_url="", report_queue_url=url))
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    report = NodeReport.from_body(message["Body"])
    assert (report.stage, report.instance_id) == (ReportStage.FAILED, "i-0123456789abcdef0")
    assert report.reason.cause.startswith("bootstrap failed on worker ")


def test_is_one_file_of_the_standard_library_that_python_3_9_can_read():
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 9))
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert imported <= sys.stdlib_module_names
