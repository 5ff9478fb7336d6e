"""A cloud assembly to deploy, and an embedded AWS in a process of its own to deploy it to."""

import http.client
import json
import queue
import shutil
import subprocess
import sys
import threading
import urllib.parse
from functools import partial
from pathlib import Path

import aws_cdk as cdk
import boto3
import pytest
from botocore.config import Config

from tests.real_time import GENEROUS_SECONDS, wait_until

HERE = Path(__file__).parent
LONGEST_SECONDS = 12 * 3600
"""Longest visibility time-out of SQS."""


class CloudProcess:
    """Talks to the process that runs one embedded AWS after the other."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.embedded_aws.cloud_process"],
            cwd=HERE.parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._backlog = []
        self.endpoint = ""
        self.openings = 0
        self._clients = {}

    def open(self, **options):
        """Start an embedded AWS with options, after the one before it was stopped."""
        pace = {"reaction": 0.05, "launch": 0.05, "failure": 0.05, "termination": 0.05, "notification_gap": 0.02}
        self.command("open", options={**options, "pace": pace | options.get("pace", {})})
        self._backlog.clear()
        self._clients.clear()
        self.openings += 1

    def forget(self):
        """Drop all that was told so far."""
        self.command("report")  # Its answer comes after everything that was told before.
        self._backlog.clear()

    def command(self, do, **content):
        """Give a command and return its answer; an error of the rehearsal comes back as its text."""
        self._process.stdin.write(json.dumps({"do": do, **content}) + "\n")
        self._process.stdin.flush()
        line = self.next(lambda entry: entry["kind"] in ("answer", "error"))
        return line["value"] if line["kind"] == "answer" else line["text"]

    def deploy(self, assembly, size=None, stack=None):
        """Deploy a stack of an assembly, by default the only one, and return the answer."""
        value = self.command("deploy", assembly=str(assembly), size=size, stack=stack)
        if isinstance(value, dict):
            self.endpoint = value["endpoint"]
        return value

    def next(self, wanted):
        """Return the first line that fits and was not taken before, waiting for it if need be."""
        for position, line in enumerate(self._backlog):
            if wanted(line):
                return self._backlog.pop(position)
        while True:
            line = self._lines.get(timeout=GENEROUS_SECONDS)
            assert line is not None, "the embedded AWS has ended"
            if wanted(line):
                return line
            self._backlog.append(line)

    def observation(self, text):
        """Wait for an observation that contains a text."""
        return self.next(lambda line: line["kind"] == "observation" and text in line["text"])

    def seen(self, text):
        """Return the observations so far that contain a text and were not taken."""
        self.command("report")  # its answer comes after everything that was told before
        return [line for line in self._backlog if line["kind"] == "observation" and text in line["text"]]

    def machine(self, role):
        """Wait for the boot of a machine of a role that was not taken before."""
        line = self.next(lambda line: line["kind"] == "boot" and line["machine"]["tags"]["deeplearning:role"] == role)
        return line["machine"]

    def client(self, service, machine=None):
        """Return a client with a machine's credentials, or the operator's."""
        keys = {
            "aws_access_key_id": machine["access_key_id"] if machine else "AKIAREHEARSALOPERATR",
            "aws_secret_access_key": machine["secret_access_key"] if machine else "any",
            "aws_session_token": machine["session_token"] if machine else None,
        }
        made = (service, self.endpoint, *keys.values())
        if made not in self._clients:  # One takes as much CPU as twenty calls.
            config = Config(retries={"total_max_attempts": 1}, proxies={}, read_timeout=GENEROUS_SECONDS)
            self._clients[made] = boto3.client(
                service, region_name="us-east-1", endpoint_url=self.endpoint, config=config, **keys
            )
        return self._clients[made]

    def physical_id(self, logical_id, stack="sample"):
        """Return the physical id of a resource of a stack, once it has one."""
        describe = partial(self.client("cloudformation").describe_stack_resources, StackName=stack)

        def find():
            ids = {row["LogicalResourceId"]: row.get("PhysicalResourceId") for row in describe()["StackResources"]}
            return ids.get(logical_id)

        return wait_until(find)

    def ask(self, logical_id, desired):
        """Set the desired capacity of a group of the sample stack once the group is complete."""
        self.observation(f"{logical_id} CREATE_COMPLETE")
        name = self.physical_id(logical_id)
        self.client("autoscaling").set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=desired)

    def listen(self, topic, url):
        """Subscribe a queue to a topic, which its policy admits from now on."""
        sqs = self.client("sqs")
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": "sns.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": topic}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
        self.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)

    def receive(self, url, machine=None, **options):
        """Wait for messages of a queue, which stay in it and do not come again; return them."""
        ask = partial(self.client("sqs", machine).receive_message, QueueUrl=url, WaitTimeSeconds=20)
        return wait_until(lambda: ask(**{"VisibilityTimeout": LONGEST_SECONDS} | options).get("Messages"))

    def end(self, stack=""):
        """Wait for the end of what CloudFormation does with a stack, by default the last; return its outcome."""
        return self.command("wait", seconds=GENEROUS_SECONDS, stack=stack)

    def complete(self):
        """Let the sample stack become complete by the signal for which it waits."""
        body = {"Status": "SUCCESS", "Reason": "formed", "UniqueId": "sample", "Data": ""}
        assert self.put_signal(self.physical_id("Handle"), json.dumps(body).encode()) == 200
        assert self.end()["status"] == "CREATE_COMPLETE"

    def put_signal(self, url, body, content_type=""):
        """PUT a body to a handle's URL with a content type, and return the HTTP status."""
        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc)
        connection.request("PUT", f"{parts.path}?{parts.query}", body=body, headers={"Content-Type": content_type})
        status = connection.getresponse().status
        connection.close()
        return status

    def close(self):
        """End the process."""
        self._process.stdin.close()
        self._process.wait(timeout=GENEROUS_SECONDS)
        self._reader.join()
        self._process.stdout.close()
        assert self._process.returncode == 0

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)


def write_assembly(folder, template, environment="aws://unknown-account/unknown-region", tags=None, name="sample"):
    """Write a cloud assembly with one stack, as CDK does."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.template.json").write_text(json.dumps(template))
    shutil.copytree(HERE / "sample_function", folder / "asset.sample", ignore=shutil.ignore_patterns("__pycache__"))
    bucket = "cdk-hnb659fds-assets-${AWS::AccountId}-${AWS::Region}"
    files = {
        "function": {
            "source": {"path": "asset.sample", "packaging": "zip"},
            "destinations": {"here": {"bucketName": bucket, "objectKey": "sample-function.zip"}},
        },
        "template": {
            "source": {"path": f"{name}.template.json", "packaging": "file"},
            "destinations": {"here": {"bucketName": bucket, "objectKey": "template.json"}},
        },
    }
    (folder / f"{name}.assets.json").write_text(json.dumps({"version": "55.0.0", "files": files}))
    artifacts = {
        f"{name}.assets": {"type": "cdk:asset-manifest", "properties": {"file": f"{name}.assets.json"}},
        name: {
            "type": "aws:cloudformation:stack",
            "environment": environment,
            "properties": {"templateFile": f"{name}.template.json"} | ({"tags": tags} if tags else {}),
            "dependencies": [f"{name}.assets"],
        },
    }
    (folder / "manifest.json").write_text(json.dumps({"version": "55.0.0", "artifacts": artifacts}))
    return folder


@pytest.fixture
def sample_template():
    """A fresh copy of the sample template."""
    return json.loads((HERE / "sample_template.json").read_text())


@pytest.fixture(scope="session")
def deploy_template(start_cloud, assemble, tmp_path_factory):
    """
    Return the function that deploys a template to an embedded AWS with options, and returns it with its `answer`.

    `tags` are the tags of the stack itself.
    """

    def deploy(template, tags=None, **options):
        cloud = start_cloud(**options)
        cloud.answer = cloud.deploy(assemble(tmp_path_factory.mktemp("assembly") / "cdk.out", template, tags=tags))
        return cloud

    return deploy


@pytest.fixture(scope="session")
def deploy_app(start_cloud, tmp_path_factory):
    """Return the function that deploys a stack with what a function adds, and returns the AWS with its `answer`."""

    def deploy(add, **options):
        folder = tmp_path_factory.mktemp("assembly") / "cdk.out"
        app = cdk.App(outdir=str(folder), builtin_cloud_formation_validation=False)
        add(cdk.Stack(app, "sample"))
        app.synth()
        cloud = start_cloud(**options)
        cloud.answer = cloud.deploy(folder)
        return cloud

    return deploy


@pytest.fixture(scope="session")
def assemble():
    """Return the function that writes an assembly."""
    return write_assembly


@pytest.fixture(scope="module")
def sample_assembly(tmp_path_factory):
    """The sample template as a cloud assembly."""
    template = json.loads((HERE / "sample_template.json").read_text())
    return write_assembly(tmp_path_factory.mktemp("assembly") / "cdk.out", template)


def read_asking_template():
    """Return the sample template without desired capacities."""
    template = json.loads((HERE / "sample_template.json").read_text())
    for name in ("MasterGroup", "WorkerGroup"):
        del template["Resources"][name]["Properties"]["DesiredCapacity"]
    return template


@pytest.fixture(scope="module")
def asking_assembly(tmp_path_factory):
    """The sample template as a cloud assembly, whose groups have nothing until somebody asks."""
    return write_assembly(tmp_path_factory.mktemp("assembly") / "cdk.out", read_asking_template())


@pytest.fixture(scope="module")
def telling_assembly(tmp_path_factory):
    """The assembly whose groups have nothing until somebody asks, and whose function tells its queue of each event."""
    template = read_asking_template()
    template["Resources"]["Function"]["Properties"]["Environment"] = {
        "Variables": {"QUEUE_URL": {"Ref": "FunctionQueue"}}
    }
    return write_assembly(tmp_path_factory.mktemp("assembly") / "cdk.out", template)


@pytest.fixture(scope="session")
def cloud_process():
    """The process that runs the embedded AWS."""
    process = CloudProcess()
    yield process
    process.close()


@pytest.fixture(scope="session")
def start_cloud(cloud_process):
    """Return the function that starts an embedded AWS with options; it ends the one before."""

    def start(**options):
        cloud_process.open(**options)
        return cloud_process

    return start


@pytest.fixture(scope="module")
def share(cloud_process):
    """
    Return the function that returns what tests of a module share under a name, with nothing told that was not taken.

    It is made by a function, and made again only after another AWS was opened.
    """
    last = (None, None, None)

    def give(name, make):
        nonlocal last
        if last[:2] != (name, cloud_process.openings):
            value = make()
            last = (name, cloud_process.openings, value)
        cloud_process.forget()
        return last[2]

    return give
