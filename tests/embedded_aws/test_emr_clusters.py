"""An EMR cluster takes AWS's way through its states, on nodes that these tests play."""

import http.client
import json
import re
import time
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError
from tests.embedded_aws.emr_template import RESOURCES, make_step, make_template

MASTER, CORE = "MASTER", "CORE"


class PlayedNode:
    """The controller of a node that does not boot: it asks for orders and reports what the test wants."""

    def __init__(self, machine):
        self.machine = machine
        self.id = machine["instance_id"]
        self.role = machine["tags"]["aws:elasticmapreduce:instance-group-role"]
        self.url = urlsplit(re.search(r"'(http[^']*)'", machine["user_data"])[1])
        self.hosts = {}

    def ask(self, verb, **report):
        connection = http.client.HTTPConnection(self.url.netloc, timeout=30)
        connection.request("POST", f"{self.url.path}/{verb}", body=json.dumps(report))
        answer = connection.getresponse()
        return json.loads(answer.read()) if answer.status == http.client.OK else answer.status

    def order(self, kind):
        """Wait for an order of a kind; take the names of hosts meanwhile."""
        while True:
            (order,) = self.ask("orders")
            if order["do"] == "hosts":
                self.hosts = order["hosts"]
            else:
                assert order["do"] == kind
                return order

    def bootstrap(self):
        """Boot, and bootstrap without a fault; return the order."""
        self.ask("report", event="ready")
        order = self.order("bootstrap")
        self.ask("report", event="bootstrapped")
        return order


class Sample:
    """A deployed cluster with its played nodes."""

    def __init__(self, cloud, nodes):
        self.cloud = cloud
        self.nodes = nodes

    @property
    def emr(self):
        return self.cloud.client("emr")

    @property
    def id(self):
        return self.cloud.physical_id("Cluster")

    @property
    def master(self):
        return next(node for node in self.nodes if node.role == MASTER)

    @property
    def cores(self):
        return [node for node in self.nodes if node.role == CORE]

    def take_node(self):
        """Wait for one more node that boots."""
        node = PlayedNode(self.cloud.next(lambda line: line["kind"] == "boot")["machine"])
        self.nodes.append(node)
        return node

    def status(self):
        return self.emr.describe_cluster(ClusterId=self.id)["Cluster"]["Status"]

    def wait_for(self, state):
        """Wait for a state of the cluster, and return its reason."""
        return self._wait(lambda: self.status(), state)["StateChangeReason"]

    def wait_for_step(self, step_id, state):
        """Wait for a state of a step, and return its status."""
        return self._wait(lambda: self.emr.describe_step(ClusterId=self.id, StepId=step_id)["Step"]["Status"], state)

    def add_steps(self, *steps):
        return self.emr.add_job_flow_steps(JobFlowId=self.id, Steps=list(steps))["StepIds"]

    def step_states(self):
        steps = self.emr.list_steps(ClusterId=self.id)["Steps"]
        return {step["Name"]: step["Status"]["State"] for step in steps}

    def instances(self, **filters):
        rows = self.emr.list_instances(ClusterId=self.id, **filters)["Instances"]
        return {row["Ec2InstanceId"]: row["Status"]["State"] for row in rows}

    def _wait(self, read, state):
        for _ in range(200):
            if (status := read())["State"] == state:
                return status
            time.sleep(0.05)
        raise AssertionError(f"{state} did not come, it is {status}")


@pytest.fixture
def deploy(start_cloud, assemble, tmp_path):
    """Return a function that deploys a template and takes its nodes."""

    def start(template, nodes=3, **options):
        cloud = start_cloud(**options)
        answer = cloud.deploy(assemble(tmp_path / "cdk.out", template))
        assert isinstance(answer, dict), answer
        sample = Sample(cloud, [])
        for _ in range(nodes):
            sample.take_node()
        return sample

    return start


@pytest.fixture
def running(deploy):
    """Return a function that deploys a cluster and bootstraps its nodes."""

    def start(**cluster):
        sample = deploy(make_template(**cluster))
        for node in sample.nodes:
            node.bootstrap()
        sample.cloud.observation("Cluster CREATE_COMPLETE")
        return sample

    return start


@pytest.fixture
def refuse(start_cloud, assemble, tmp_path):
    """Return a function that deploys a template, and returns why it failed and which instances booted."""

    def start(template):
        cloud = start_cloud()
        answer = cloud.deploy(assemble(tmp_path / "cdk.out", template))
        if isinstance(answer, str):
            return answer
        outcome = cloud.command("wait", seconds=30)
        assert outcome["status"] == "ROLLBACK_COMPLETE", outcome["reason"]
        return outcome["reason"]

    return start


def test_a_cluster_waits_when_all_nodes_have_bootstrapped(deploy):
    sample = deploy(make_template())
    assert sample.status()["State"] == "STARTING"
    assert [node.role for node in sample.nodes].count(CORE) == 2
    order = sample.master.bootstrap()
    assert sample.status()["State"] == "BOOTSTRAPPING"
    assert order["actions"] == [{"path": "s3://sample-emr-logs/scripts/setup.sh", "arguments": ["one", "two words"]}]
    for core in sample.cores:
        core.bootstrap()
    assert sample.wait_for("WAITING") == {"Message": "Cluster ready to run steps."}
    outcome = sample.cloud.command("wait", seconds=20)
    assert outcome["status"] == "CREATE_COMPLETE"
    assert re.fullmatch(r"j-[0-9A-Z]{13}", outcome["outputs"]["Id"])
    assert outcome["outputs"]["Master"] == f"ip-{sample.master.machine['address'].replace('.', '-')}.ec2.internal"


def test_an_instance_is_launched_as_the_template_says(running):
    sample = running()
    master = sample.master.machine
    assert master["login_user"] == "hadoop"
    assert master["address"].startswith("10.0.0.")
    assert (master["instance_type"], sample.cores[0].machine["instance_type"]) == ("m5.xlarge", "c5.2xlarge")
    assert master["tags"]["team"] == "learning"
    assert master["tags"]["aws:elasticmapreduce:job-flow-id"] == sample.id
    assert sample.emr.list_bootstrap_actions(ClusterId=sample.id)["BootstrapActions"][0]["Args"] == ["one", "two words"]
    groups = sample.emr.list_instance_groups(ClusterId=sample.id)["InstanceGroups"]
    counts = [(group["InstanceGroupType"], group["RunningInstanceCount"]) for group in groups]
    assert counts == [(MASTER, 1), (CORE, 2)]
    assert sample.instances(InstanceGroupTypes=[MASTER]) == {sample.master.id: "RUNNING"}


def test_a_node_finds_its_cluster_in_files(deploy):
    """Fields of both files as in examples of real nodes (mrjob, cascading); a primary may have `localhost`."""
    sample = deploy(make_template())
    (master, core) = (node.bootstrap()["info"] for node in (sample.master, sample.cores[0]))
    assert (master["instance.json"]["isMaster"], core["instance.json"]["isMaster"]) == (True, False)
    name = f"ip-{sample.master.machine['address'].replace('.', '-')}.ec2.internal"
    assert core["job-flow.json"]["masterPrivateDnsName"] == name
    assert master["job-flow.json"]["masterPrivateDnsName"] == "localhost"
    flow = core["job-flow.json"]
    assert (flow["jobFlowId"], flow["instanceCount"], flow["masterInstanceId"]) == (sample.id, 3, sample.master.id)
    counts = {group["instanceRole"]: group["requestedInstanceCount"] for group in flow["instanceGroups"]}
    assert counts == {"Master": 1, "Core": 2}
    assert sample.master.hosts[name] == sample.master.machine["address"]
    assert len(sample.master.hosts) == 3


def test_yarn_knows_the_core_nodes_alone(running):
    """A primary of EMR runs no NodeManager."""
    sample = running()
    names = {f"ip-{node.machine['address'].replace('.', '-')}.ec2.internal" for node in sample.cores}
    assert set(sample.master.ask("nodes")) == names


def test_steps_run_one_after_the_other(running):
    sample = running()
    first, second = sample.add_steps(make_step("one", "echo", "1"), make_step("two", "echo", "2"))
    order = sample.master.order("step")
    assert (order["id"], order["arguments"], order["jar"]) == (first, ["echo", "1"], "command-runner.jar")
    assert order["logs"] == f"s3://sample-emr-logs/logs/{sample.id}/steps/"
    assert sample.step_states() == {"one": "RUNNING", "two": "PENDING"}
    assert sample.status()["State"] == "RUNNING"
    sample.master.ask("report", event="step", id=first, code=0)
    assert sample.master.order("step")["id"] == second
    sample.master.ask("report", event="step", id=second, code=0)
    assert sample.step_states() == {"one": "COMPLETED", "two": "COMPLETED"}
    assert sample.status()["StateChangeReason"] == {"Message": "Cluster ready after last step completed."}


def test_steps_run_together_up_to_the_concurrency_level(running):
    sample = running(StepConcurrencyLevel=2)
    sample.add_steps(*(make_step(name, "true") for name in ("a", "b", "c")))
    first, _ = sample.master.order("step"), sample.master.order("step")
    assert sample.step_states() == {"a": "RUNNING", "b": "RUNNING", "c": "PENDING"}
    sample.master.ask("report", event="step", id=first["id"], code=0)
    sample.master.order("step")
    with pytest.raises(ClientError, match="ActionOnFailure must be CONTINUE where StepConcurrencyLevel exceeds 1"):
        sample.add_steps(make_step("d", "true", action="TERMINATE_CLUSTER"))


@pytest.mark.parametrize(
    ("action", "left", "state"),
    [
        ("CONTINUE", "RUNNING", "RUNNING"),
        ("CANCEL_AND_WAIT", "CANCELLED", "WAITING"),
        ("TERMINATE_CLUSTER", "CANCELLED", "TERMINATED_WITH_ERRORS"),
    ],
)
def test_a_failed_step_has_the_effect_of_its_action(running, action, left, state):
    sample = running()
    failing, _ = sample.add_steps(make_step("bad", "false", action=action), make_step("next", "true"))
    sample.master.order("step")
    sample.master.ask("report", event="step", id=failing, code=1)
    status = sample.wait_for_step(failing, "FAILED")
    log = f"s3://sample-emr-logs/logs/{sample.id}/steps/{failing}/stderr.gz"
    assert status["FailureDetails"] == {"Reason": "Unknown Error.", "LogFile": log}
    reason = sample.wait_for(state)
    assert sample.step_states() == {"bad": "FAILED", "next": left}
    if state == "TERMINATED_WITH_ERRORS":
        assert reason == {"Code": "STEP_FAILURE", "Message": "Shut down as step failed"}


def test_protection_outweighs_a_step_that_would_end_the_cluster(running):
    sample = running(Instances={"TerminationProtected": True})
    (failing,) = sample.add_steps(make_step("bad", "false", action="TERMINATE_CLUSTER"))
    sample.master.order("step")
    sample.master.ask("report", event="step", id=failing, code=1)
    sample.wait_for("WAITING")
    with pytest.raises(ClientError, match="Could not shut down one or more job flows since they are termination prot"):
        sample.emr.terminate_job_flows(JobFlowIds=[sample.id])


@pytest.mark.parametrize(("option", "by_force"), [("SEND_INTERRUPT", False), ("TERMINATE_PROCESS", True)])
def test_a_running_step_is_cancelled_when_its_process_has_ended(running, option, by_force):
    """Management Guide, "Cancel steps": no action on failure follows, and no other step starts before the end."""
    sample = running()
    step, waiting = sample.add_steps(
        make_step("long", "sleep", "9", action="TERMINATE_CLUSTER"), make_step("b", "true")
    )
    sample.master.order("step")
    cancelled = sample.emr.cancel_steps(ClusterId=sample.id, StepIds=[step], StepCancellationOption=option)
    assert cancelled["CancelStepsInfoList"] == [{"StepId": step, "Status": "SUBMITTED"}]
    assert sample.master.order("cancel") == {"do": "cancel", "id": step, "by_force": by_force}
    assert sample.step_states() == {"long": "CANCEL_PENDING", "b": "PENDING"}
    sample.master.ask("report", event="step", id=step, code=-15)
    assert sample.master.order("step")["id"] == waiting
    assert sample.step_states() == {"long": "CANCELLED", "b": "RUNNING"}


def test_a_pending_step_is_cancelled_at_once_and_an_ended_one_never(running):
    sample = running()
    step, pending = sample.add_steps(make_step("a", "true"), make_step("b", "true"))
    sample.master.order("step")
    sample.emr.cancel_steps(ClusterId=sample.id, StepIds=[pending])
    assert sample.step_states() == {"a": "RUNNING", "b": "CANCELLED"}
    sample.master.ask("report", event="step", id=step, code=0)
    (answer,) = sample.emr.cancel_steps(ClusterId=sample.id, StepIds=[step])["CancelStepsInfoList"]
    assert answer["Status"] == "FAILED"


def test_a_cluster_that_is_not_kept_alive_ends_with_its_last_step(deploy):
    template = make_template(Steps=[make_step("only", "true")], Instances={"KeepJobFlowAliveWhenNoSteps": False})
    sample = deploy(template)
    for node in sample.nodes:
        node.bootstrap()
    order = sample.master.order("step")
    sample.cloud.observation("Cluster CREATE_COMPLETE")
    sample.master.ask("report", event="step", id=order["id"], code=0)
    assert sample.wait_for("TERMINATED") == {"Code": "ALL_STEPS_COMPLETED", "Message": "Steps completed"}
    assert set(sample.instances().values()) == {"TERMINATED"}
    with pytest.raises(ClientError, match="A job flow that is shutting down, terminated, or finished may not be mod"):
        sample.add_steps(make_step("late", "true"))


@pytest.mark.parametrize(
    ("role", "cause", "message"),
    [
        (MASTER, "code", "On the master instance ({id}), bootstrap action 1 returned a non-zero return code"),
        (MASTER, "download", "Master instance ({id}) failed attempting to download bootstrap action 1 file from S3"),
        (CORE, "code", "On 1 slave instance (including {id}), bootstrap action 1 returned a non-zero return code"),
    ],
)
def test_a_failed_bootstrap_action_ends_the_cluster(deploy, role, cause, message):
    """Wittline/pyspark-on-aws-emr#4, aws-samples/emr-bootstrap-actions#220 and mrjob's tests have the words."""
    sample = deploy(make_template())
    node = next(node for node in sample.nodes if node.role == role)
    node.ask("report", event="ready")
    node.order("bootstrap")
    node.ask("report", event="bootstrap-failed", action=1, cause=cause)
    outcome = sample.cloud.command("wait", seconds=20)
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert outcome["reason"] == f"BOOTSTRAP_FAILURE: {message.format(id=node.id)}"
    assert node.ask("orders") == http.client.NOT_FOUND


def test_a_core_node_that_dies_is_replaced(running):
    """EMR FAQs: it provisions a new node when a core node fails."""
    sample = running()
    dead = sample.cores[0]
    assert sample.cloud.command("fail_instance", instance_id=dead.id)
    assert sample.instances()[dead.id] == "TERMINATED"
    new = sample.take_node()
    assert new.role == CORE
    assert len(sample.master.ask("nodes")) == 1
    order = new.bootstrap()
    assert order["info"]["job-flow.json"]["masterInstanceId"] == sample.master.id
    assert sample.instances()[new.id] == "RUNNING"
    assert sample.status()["State"] == "WAITING"
    assert len(sample.master.ask("nodes")) == 2


def test_a_primary_that_dies_ends_the_cluster(running):
    sample = running()
    assert sample.cloud.command("fail_instance", instance_id=sample.master.id)
    reason = sample.wait_for("TERMINATED_WITH_ERRORS")
    assert reason == {"Code": "INSTANCE_FAILURE", "Message": "The master node was terminated. "}


def test_a_node_that_restarts_does_not_bootstrap_again(running):
    sample = running()
    sample.master.ask("report", event="ready")
    (step,) = sample.add_steps(make_step("a", "true"))
    assert sample.master.order("step")["id"] == step


def test_the_deletion_of_the_stack_ends_the_cluster(running):
    sample = running()
    identity = sample.id
    sample.cloud.client("cloudformation").delete_stack(StackName="sample")
    sample.cloud.observation("sample DELETE_COMPLETE")
    status = sample.emr.describe_cluster(ClusterId=identity)["Cluster"]["Status"]
    assert status["State"] == "TERMINATED"
    assert status["StateChangeReason"] == {"Code": "USER_REQUEST", "Message": "Terminated by user request"}


def test_the_stack_of_a_protected_cluster_is_not_deleted(running):
    sample = running(Instances={"TerminationProtected": True})
    sample.cloud.client("cloudformation").delete_stack(StackName="sample")
    sample.cloud.observation("Cluster DELETE_FAILED")
    assert sample.status()["State"] == "WAITING"


def test_an_unknown_cluster_is_an_invalid_request(running):
    sample = running()
    with pytest.raises(ClientError, match="InvalidRequestException.*Cluster id 'j-NONE' is not valid"):
        sample.emr.describe_cluster(ClusterId="j-NONE")
    with pytest.raises(ClientError, match="the rehearsal does not implement emr:ListSecurityConfigurations"):
        sample.emr.list_security_configurations()


ROLE = RESOURCES["ServiceRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"][0]["Action"]


@pytest.mark.parametrize("missing", ROLE)
def test_a_right_that_the_service_role_lacks_ends_the_cluster(refuse, missing):
    """terraform-aws-modules/terraform-aws-emr#3 and others have the words."""
    if missing == "ec2:TerminateInstances":
        pytest.skip("EMR needs it at the end: the next test")
    template = make_template()
    statement = template["Resources"]["ServiceRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"][0]
    statement["Action"] = [action for action in ROLE if action != missing]
    reason = refuse(template)
    assert re.match(
        r"VALIDATION_ERROR: Service role arn:aws:iam::\d+:role/sample-ServiceRole-\w+ has insufficient EC2 permissions. "
        r"EC2 Message: You are not authorized to perform this operation. ",
        reason,
    )
    assert missing.rstrip("*") in reason
