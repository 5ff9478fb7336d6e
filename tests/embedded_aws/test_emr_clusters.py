"""An EMR cluster takes AWS's way through its states, on nodes that these tests play."""

import http.client
import itertools
import json
import re
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError

from tests.embedded_aws.emr_template import (
    MARK,
    SERVICE_ACTIONS,
    allow,
    make_site,
    make_step,
    make_template,
    trust,
)
from tests.real_time import GENEROUS_SECONDS, wait_until

MASTER, CORE = "MASTER", "CORE"


class PlayedNode:
    """The controller of a node that does not boot: it asks for orders and reports what the test wants."""

    def __init__(self, machine):
        self.machine = machine
        self.id = machine["instance_id"]
        self.role = machine["tags"]["aws:elasticmapreduce:instance-group-role"]
        self.url = urlsplit(re.search(r"'(http[^']*)'", machine["user_data"])[1])
        self.name = f"ip-{machine['address'].replace('.', '-')}.ec2.internal"
        self.hosts = {}
        self.disk_percent, self.busy_seconds = 10, None

    def ask(self, verb, **report):
        connection = http.client.HTTPConnection(self.url.netloc, timeout=GENEROUS_SECONDS)
        connection.request("POST", f"{self.url.path}/{verb}", body=json.dumps(report))
        answer = connection.getresponse()
        return json.loads(answer.read()) if answer.status == http.client.OK else answer.status

    def order(self, kind):
        """Wait for an order of a kind; take the names of hosts meanwhile."""
        while True:
            (order,) = wait_until(lambda: self.ask("orders"))
            if order["do"] == "hosts":
                self.hosts = order["hosts"]
            elif order["do"] == "measure" != kind:
                self.measure()
            else:
                assert order["do"] == kind
                return order

    def measure(self):
        """Report the fill of the disk, and the age of the file by which programs outside of YARN show activity."""
        self.ask("report", event="measured", disk_percent=self.disk_percent, busy_seconds=self.busy_seconds)

    def bootstrap(self):
        """Boot, and bootstrap without a fault; return the order."""
        self.ask("report", event="ready")
        order = self.order("bootstrap")
        self.ask("report", event="bootstrapped")
        return order

    def end_step(self, step_id, code=0):
        """Report the end of a step's process."""
        self.ask("report", event="step", id=step_id, code=code)


NUMBERS = itertools.count(1)
EMR, EC2 = "elasticmapreduce.amazonaws.com", "ec2.amazonaws.com"


class Sample:
    """A cluster with its played nodes; `stack` is its own, if it has one."""

    def __init__(self, cloud, identity="", stack=""):
        self.cloud = cloud
        self.stack = stack
        self.id = identity or cloud.physical_id("Cluster", stack)
        self.nodes = []
        for _ in range(3):
            self.take_node()

    @property
    def emr(self):
        return self.cloud.client("emr")

    @property
    def master(self):
        return next(node for node in self.nodes if node.role == MASTER)

    @property
    def cores(self):
        return [node for node in self.nodes if node.role == CORE]

    def take_node(self):
        """Wait for one more node that boots."""

        def is_own(line):
            return line["kind"] == "boot" and line["machine"]["tags"]["aws:elasticmapreduce:job-flow-id"] == self.id

        node = PlayedNode(self.cloud.next(is_own)["machine"])
        self.nodes.append(node)
        return node

    def bootstrap(self):
        """Bootstrap all nodes without a fault; return the sample."""
        for node in self.nodes:
            node.bootstrap()
        return self

    def status(self):
        return self.emr.describe_cluster(ClusterId=self.id)["Cluster"]["Status"]

    def wait_for(self, state):
        """Wait for a state of the cluster, and return its reason."""
        return wait_until(lambda: (status := self.status())["State"] == state and status)["StateChangeReason"]

    def add_steps(self, *steps):
        return self.emr.add_job_flow_steps(JobFlowId=self.id, Steps=list(steps))["StepIds"]

    def step_states(self):
        steps = self.emr.list_steps(ClusterId=self.id)["Steps"]
        return {step["Name"]: step["Status"]["State"] for step in steps}

    def instances(self, **filters):
        rows = self.emr.list_instances(ClusterId=self.id, **filters)["Instances"]
        return {row["Ec2InstanceId"]: row["Status"]["State"] for row in rows}


class Site:
    """A deployed stack with all that clusters need, where tests run clusters of their own."""

    def __init__(self, cloud, write):
        self.cloud = cloud
        self._write = write
        self._blocks = itertools.count()
        rows = cloud.client("cloudformation").describe_stack_resources(StackName="sample")["StackResources"]
        self.ids = {row["LogicalResourceId"]: row["PhysicalResourceId"] for row in rows} | cloud.end()["outputs"]

    def move(self):
        """Make a subnet for the next test, since the interfaces of ended instances stay in theirs."""
        ec2 = self.cloud.client("ec2")
        subnet = ec2.create_subnet(
            VpcId=self.ids["Vpc"],
            CidrBlock=f"10.0.{100 + next(self._blocks)}.0/28",
            AvailabilityZone="us-east-1a",
            TagSpecifications=[{"ResourceType": "subnet", "Tags": [MARK]}],
        )["Subnet"]["SubnetId"]
        ec2.associate_route_table(RouteTableId=self.ids["Table"], SubnetId=subnet)
        self.ids["Subnet"] = subnet

    def describe(self, **cluster):
        """Return the properties of a cluster in CloudFormation, with ids of the site."""
        return self._resolve(make_template(**cluster)["Resources"]["Cluster"]["Properties"])

    def launch(self, **cluster):
        """Run a cluster by the API of EMR, and take its nodes."""
        request = self.describe(**cluster)
        groups = {role: request["Instances"].pop(f"{role.capitalize()}InstanceGroup") for role in (MASTER, CORE)}
        request["Instances"]["InstanceGroups"] = [group | {"InstanceRole": role} for role, group in groups.items()]
        return Sample(self.cloud, self.cloud.client("emr").run_job_flow(**request)["JobFlowId"])

    def run(self, **cluster):
        """Run a cluster and bootstrap its nodes."""
        sample = self.launch(**cluster).bootstrap()
        sample.wait_for("WAITING")
        return sample

    def begin(self, **cluster):
        """Begin to deploy a stack with a cluster alone; return its name and the answer."""
        name = f"more-{next(NUMBERS)}"
        template = {"Resources": {"Cluster": {"Type": "AWS::EMR::Cluster", "Properties": self.describe(**cluster)}}}
        master = {"Value": {"Fn::GetAtt": ["Cluster", "MasterPublicDNS"]}}
        template["Outputs"] = {"Id": {"Value": {"Ref": "Cluster"}}, "Master": master}
        return name, self.cloud.deploy(self._write(template, name), stack=name)

    def deploy(self, **cluster):
        """Begin to deploy a stack with a cluster, and take its nodes."""
        name, answer = self.begin(**cluster)
        assert isinstance(answer, dict), answer
        return Sample(self.cloud, stack=name)

    def refuse(self, **cluster):
        """Deploy a stack with a cluster, and return why it failed."""
        name, answer = self.begin(**cluster)
        if isinstance(answer, str):
            return answer
        # Nobody would bootstrap the nodes of a cluster that starts, and the stack would never end.
        ends = (("boot", ""), ("observation", f"{name} ROLLBACK_COMPLETE"))
        line = self.cloud.next(lambda line: any(line["kind"] == kind and text in str(line) for kind, text in ends))
        assert line["kind"] == "observation", "the cluster starts"
        outcome = self.cloud.end(name)
        assert outcome["status"] == "ROLLBACK_COMPLETE", outcome["reason"]
        return outcome["reason"]

    def make_role(self, trusted, *policies):
        """Make a role that trusts a service and has policies; return its name."""
        iam, name = self.cloud.client("iam"), f"made-{next(NUMBERS)}"
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust(trusted)))
        for number, policy in enumerate(policies):
            document = json.dumps(self._resolve(policy["PolicyDocument"]))
            iam.put_role_policy(RoleName=name, PolicyName=f"p{number}", PolicyDocument=document)
        return name

    def make_profile(self, trusted, *policies):
        """Make an instance profile with a role of its own; return the name of both."""
        iam, name = self.cloud.client("iam"), self.make_role(trusted, *policies)
        iam.create_instance_profile(InstanceProfileName=name)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
        return name

    def make_service_role(self, without):
        """Make a service role that may do all but one action."""
        return self.make_role(EMR, allow([action for action in SERVICE_ACTIONS if action != without]))

    def clear(self):
        """End all clusters, and wait for what that does to the last stack."""
        emr = self.cloud.client("emr")
        states = ["STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING"]
        for cluster in emr.list_clusters(ClusterStates=states)["Clusters"]:
            emr.set_termination_protection(JobFlowIds=[cluster["Id"]], TerminationProtected=False)
            emr.terminate_job_flows(JobFlowIds=[cluster["Id"]])
        self.cloud.end()

    def _resolve(self, value):
        if isinstance(value, list):
            return [self._resolve(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        if "Ref" in value:
            return self.ids[value["Ref"]]
        if "Fn::GetAtt" in value:
            return self.ids["".join(value["Fn::GetAtt"])]
        return {key: self._resolve(entry) for key, entry in value.items()}


@pytest.fixture(scope="module")
def open_site(deploy_template, assemble, tmp_path_factory):
    """Return the function that deploys a site to an embedded AWS with options."""

    def write(template, name):
        return assemble(tmp_path_factory.mktemp("assembly") / "cdk.out", template, name=name)

    def start(**options):
        cloud = deploy_template(make_site(), **options)
        outcome = cloud.end()
        assert outcome["status"] == "CREATE_COMPLETE", outcome["reason"]
        return Site(cloud, write)

    return start


FAULT = {"code": "InsufficientInstanceCapacity"}
OPTIONS = {
    "minute_seconds": 0.5,
    "pace": {"retries": [0.1]},
    "faults": [FAULT | {"group": "full", "ordinals": [3]}, FAULT | {"group": "hopeless"}],
}


@pytest.fixture
def site(share, open_site):
    """The site of most tests."""
    shared = share("site", lambda: open_site(**OPTIONS))
    shared.move()
    yield shared
    shared.clear()


@pytest.fixture
def deploy(site):
    return site.deploy


@pytest.fixture
def launch(site):
    return site.launch


@pytest.fixture
def running(site):
    return site.run


@pytest.fixture
def refuse(site):
    return site.refuse


def test_a_cluster_waits_when_all_nodes_have_bootstrapped(deploy):
    sample = deploy()
    assert sample.status()["State"] == "STARTING"
    assert [node.role for node in sample.nodes].count(CORE) == 2
    order = sample.master.bootstrap()
    assert sample.status()["State"] == "BOOTSTRAPPING"
    assert order["actions"] == [{"path": "s3://sample-emr-logs/scripts/setup.sh", "arguments": ["one", "two words"]}]
    for core in sample.cores:
        core.bootstrap()
    assert sample.wait_for("WAITING") == {"Message": "Cluster ready to run steps."}
    outcome = sample.cloud.end(sample.stack)
    assert outcome["status"] == "CREATE_COMPLETE"
    assert re.fullmatch(r"j-[0-9A-Z]{13}", outcome["outputs"]["Id"])
    assert outcome["outputs"]["Master"] == sample.master.name


def test_an_instance_is_launched_as_the_template_says(running):
    sample = running()
    master = sample.master.machine
    assert master["login_user"] == "hadoop"
    assert master["address"].startswith("10.0.1")
    assert (master["instance_type"], sample.cores[0].machine["instance_type"]) == ("m5.xlarge", "c5.2xlarge")
    assert master["tags"]["team"] == "learning"
    assert master["tags"]["aws:elasticmapreduce:job-flow-id"] == sample.id
    assert sample.emr.list_bootstrap_actions(ClusterId=sample.id)["BootstrapActions"][0]["Args"] == ["one", "two words"]
    groups = sample.emr.list_instance_groups(ClusterId=sample.id)["InstanceGroups"]
    counts = [(group["InstanceGroupType"], group["RunningInstanceCount"]) for group in groups]
    assert counts == [(MASTER, 1), (CORE, 2)]
    assert sample.instances(InstanceGroupTypes=[MASTER]) == {sample.master.id: "RUNNING"}


def test_a_node_finds_its_cluster_in_files(launch):
    """Fields of both files as in examples of real nodes (mrjob, cascading); a primary may have `localhost`."""
    sample = launch()
    (master, core) = (node.bootstrap()["info"] for node in (sample.master, sample.cores[0]))
    assert (master["instance.json"]["isMaster"], core["instance.json"]["isMaster"]) == (True, False)
    assert core["job-flow.json"]["masterPrivateDnsName"] == sample.master.name
    assert master["job-flow.json"]["masterPrivateDnsName"] == "localhost"
    flow = core["job-flow.json"]
    assert (flow["jobFlowId"], flow["instanceCount"], flow["masterInstanceId"]) == (sample.id, 3, sample.master.id)
    counts = {group["instanceRole"]: group["requestedInstanceCount"] for group in flow["instanceGroups"]}
    assert counts == {"Master": 1, "Core": 2}
    assert sample.master.hosts[sample.master.name] == sample.master.machine["address"]
    assert len(sample.master.hosts) == 3


def test_yarn_knows_the_core_nodes_alone(running):
    """A primary of EMR runs no NodeManager."""
    sample = running()
    assert set(sample.master.ask("nodes")) == {node.name for node in sample.cores}


def test_steps_run_one_after_the_other(running):
    sample = running()
    first, second = sample.add_steps(make_step("one", "echo", "1"), make_step("two", "echo", "2"))
    order = sample.master.order("step")
    assert (order["id"], order["arguments"], order["jar"]) == (first, ["echo", "1"], "command-runner.jar")
    assert order["logs"] == f"s3://sample-emr-logs/logs/{sample.id}/steps/"
    assert sample.step_states() == {"one": "RUNNING", "two": "PENDING"}
    assert sample.status()["State"] == "RUNNING"
    sample.master.end_step(first)
    assert sample.master.order("step")["id"] == second
    sample.master.end_step(second)
    assert sample.step_states() == {"one": "COMPLETED", "two": "COMPLETED"}
    assert sample.status()["StateChangeReason"] == {"Message": "Cluster ready after last step completed."}


def test_steps_run_together_up_to_the_concurrency_level(running):
    sample = running(StepConcurrencyLevel=2)
    sample.add_steps(*(make_step(name, "true") for name in ("a", "b", "c")))
    first, _ = sample.master.order("step"), sample.master.order("step")
    assert sample.step_states() == {"a": "RUNNING", "b": "RUNNING", "c": "PENDING"}
    sample.master.end_step(first["id"])
    sample.master.order("step")
    with pytest.raises(ClientError, match="ActionOnFailure must be CONTINUE where StepConcurrencyLevel exceeds 1"):
        sample.add_steps(make_step("d", "true", action="TERMINATE_CLUSTER"))


def test_an_argument_of_a_step_has_at_most_10280_characters(running):
    """EMR's service model: HadoopJarStep.Args are of the shape XmlString."""
    sample = running()
    sample.add_steps(make_step("long", "x" * 10_280))
    with pytest.raises(ClientError, match=r"HadoopJarStep\.Args\.0: must have at most 10280 characters, got 10281"):
        sample.add_steps(make_step("longer", "x" * 10_281))


def test_steps_come_in_pages_of_50_the_newest_first(running):
    """EMR API Reference, ListSteps: it returns the steps in reverse order, and a marker for more than 50."""
    sample = running()
    made = sample.add_steps(*(make_step(str(number), "true") for number in range(51)))
    page = sample.emr.list_steps(ClusterId=sample.id)
    assert [step["Id"] for step in page["Steps"]] == made[:0:-1]
    rest = sample.emr.list_steps(ClusterId=sample.id, Marker=page["Marker"])
    assert [step["Id"] for step in rest["Steps"]] == made[:1]
    assert "Marker" not in rest


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
    sample.master.end_step(failing, code=1)
    status = sample.emr.describe_step(ClusterId=sample.id, StepId=failing)["Step"]["Status"]
    log = f"s3://sample-emr-logs/logs/{sample.id}/steps/{failing}/stderr.gz"
    assert status["FailureDetails"] == {"Reason": "Unknown Error.", "LogFile": log}
    reason = sample.wait_for(state)
    assert sample.step_states() == {"bad": "FAILED", "next": left}
    if state == "TERMINATED_WITH_ERRORS":
        assert reason == {"Code": "STEP_FAILURE", "Message": "Shut down as step failed"}


def test_a_failed_step_and_a_failed_end_are_events_that_rules_match(site):
    """Management Guide, "Monitoring Amazon EMR events with CloudWatch"."""
    queue = site.cloud.client("sqs").create_queue(QueueName="seen")["QueueUrl"]
    site.cloud.listen(site.ids["Topic"], queue)
    sample = site.run()
    failing, _ = sample.add_steps(make_step("bad", "false", action="TERMINATE_CLUSTER"), make_step("next", "true"))
    sample.master.order("step")
    sample.master.end_step(failing, code=1)
    sample.wait_for("TERMINATED_WITH_ERRORS")
    found = []
    while len(found) < 2:
        for message in sample.cloud.receive(queue):
            event = json.loads(json.loads(message["Body"])["Message"])
            if event["detail"]["clusterId"] == sample.id:
                found.append((event["detail-type"], event["detail"]["state"], event["detail"]["severity"]))
    assert sorted(found) == [
        ("EMR Cluster State Change", "TERMINATED_WITH_ERRORS", "ERROR"),
        ("EMR Step Status Change", "FAILED", "ERROR"),
    ]


def test_protection_outweighs_a_step_that_would_end_the_cluster(running):
    sample = running(Instances={"TerminationProtected": True})
    (failing,) = sample.add_steps(make_step("bad", "false", action="TERMINATE_CLUSTER"))
    sample.master.order("step")
    sample.master.end_step(failing, code=1)
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
    sample.master.end_step(step, code=-15)
    assert sample.master.order("step")["id"] == waiting
    assert sample.step_states() == {"long": "CANCELLED", "b": "RUNNING"}


def test_a_pending_step_is_cancelled_at_once_and_an_ended_one_never(running):
    sample = running()
    step, pending = sample.add_steps(make_step("a", "true"), make_step("b", "true"))
    sample.master.order("step")
    sample.emr.cancel_steps(ClusterId=sample.id, StepIds=[pending])
    assert sample.step_states() == {"a": "RUNNING", "b": "CANCELLED"}
    sample.master.end_step(step)
    (answer,) = sample.emr.cancel_steps(ClusterId=sample.id, StepIds=[step])["CancelStepsInfoList"]
    assert answer["Status"] == "FAILED"


def test_a_cluster_that_is_not_kept_alive_ends_with_its_last_step(deploy):
    sample = deploy(Steps=[make_step("only", "true")], Instances={"KeepJobFlowAliveWhenNoSteps": False}).bootstrap()
    order = sample.master.order("step")
    sample.cloud.observation("Cluster CREATE_COMPLETE")
    sample.master.end_step(order["id"])
    assert sample.wait_for("TERMINATED") == {"Code": "ALL_STEPS_COMPLETED", "Message": "Steps completed"}
    assert sample.cloud.end(sample.stack)["outputs"]["Master"].startswith("ip-10-0-1")
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
    sample = deploy()
    node = next(node for node in sample.nodes if node.role == role)
    node.ask("report", event="ready")
    node.order("bootstrap")
    node.ask("report", event="bootstrap-failed", action=1, cause=cause)
    outcome = sample.cloud.end(sample.stack)
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert outcome["reason"] == f"BOOTSTRAP_FAILURE: {message.format(id=node.id)}"
    assert node.ask("orders") == http.client.NOT_FOUND


LOSSES = ["dead", "disks-locked"]


def lose(sample, node, how):
    """Let a node die, or lose the passphrase of its disks."""
    if how == "dead":
        assert sample.cloud.command("fail_instance", instance_id=node.id)
    else:
        node.ask("report", event=how)


@pytest.mark.parametrize("how", LOSSES)
def test_a_core_node_that_is_lost_is_replaced(running, how):
    """EMR FAQs: it provisions a new node when a core node fails."""
    sample = running()
    dead = sample.cores[0]
    lose(sample, dead, how)
    assert sample.instances()[dead.id] == "TERMINATED"
    new = sample.take_node()
    assert new.role == CORE
    assert len(sample.master.ask("nodes")) == 1
    order = new.bootstrap()
    assert order["info"]["job-flow.json"]["masterInstanceId"] == sample.master.id
    assert sample.instances()[new.id] == "RUNNING"
    assert sample.status()["State"] == "WAITING"
    assert len(sample.master.ask("nodes")) == 2


@pytest.mark.parametrize("action", ["ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"])
def test_a_core_node_is_not_replaced_without_the_rights_of_the_first_launch(site, action):
    role, iam = site.make_role(EMR, allow(SERVICE_ACTIONS)), site.cloud.client("iam")
    sample = site.run(ServiceRole=role)
    denial = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": action, "Resource": "*"}]}
    iam.put_role_policy(RoleName=role, PolicyName="denial", PolicyDocument=json.dumps(denial))
    lose(sample, sample.cores[0], "dead")
    for _ in range(2):
        sample.cloud.observation(f"is not authorized to perform: {action}")
        sample.cloud.observation("launch failed: UnauthorizedOperation")
    assert sorted(sample.instances().values()) == ["RUNNING", "RUNNING", "TERMINATED"]
    iam.delete_role_policy(RoleName=role, PolicyName="denial")
    assert sample.take_node().role == CORE


@pytest.mark.parametrize("how", LOSSES)
def test_a_primary_that_is_lost_ends_the_cluster(running, how):
    sample = running()
    lose(sample, sample.master, how)
    reason = sample.wait_for("TERMINATED_WITH_ERRORS")
    assert reason == {"Code": "INSTANCE_FAILURE", "Message": "The master node was terminated. "}


def test_a_node_that_restarts_does_not_bootstrap_again(running):
    sample = running()
    sample.master.ask("report", event="ready")
    (step,) = sample.add_steps(make_step("a", "true"))
    assert sample.master.order("step")["id"] == step


def complete(sample):
    """Bootstrap the nodes of a stack's cluster, and wait for the end of its creation."""
    sample.bootstrap()
    assert sample.cloud.end(sample.stack)["status"] == "CREATE_COMPLETE"
    return sample


def test_the_deletion_of_the_stack_ends_the_cluster(deploy):
    sample = complete(deploy())
    sample.cloud.client("cloudformation").delete_stack(StackName=sample.stack)
    sample.cloud.observation(f"{sample.stack} DELETE_COMPLETE")
    status = sample.status()
    assert status["State"] == "TERMINATED"
    assert status["StateChangeReason"] == {"Code": "USER_REQUEST", "Message": "Terminated by user request"}


def test_the_stack_of_a_protected_cluster_is_not_deleted(deploy):
    sample = complete(deploy(Instances={"TerminationProtected": True}))
    sample.cloud.client("cloudformation").delete_stack(StackName=sample.stack)
    sample.cloud.observation("Cluster DELETE_FAILED")
    waiting = sample.emr.list_clusters(ClusterStates=["WAITING"])["Clusters"]
    assert [entry["Id"] for entry in waiting] == [sample.id]
    sample.emr.set_termination_protection(JobFlowIds=[sample.id], TerminationProtected=False)
    sample.emr.terminate_job_flows(JobFlowIds=[sample.id])
    assert sample.wait_for("TERMINATED")["Code"] == "USER_REQUEST"
    assert sample.emr.list_clusters(ClusterStates=["WAITING"])["Clusters"] == []


def test_an_unknown_cluster_is_an_invalid_request(running):
    sample = running()
    with pytest.raises(ClientError, match=r"InvalidRequestException.*Cluster id 'j-NONE' is not valid"):
        sample.emr.describe_cluster(ClusterId="j-NONE")
    with pytest.raises(ClientError, match="the rehearsal does not implement emr:ListSecurityConfigurations"):
        sample.emr.list_security_configurations()


def make_private(access="AccessGroup", **instances):
    """Return instances in a private subnet, with a group for service access."""
    group = {"ServiceAccessSecurityGroup": {"Ref": access}} if access else {}
    return {"Ec2SubnetId": {"Ref": "PrivateSubnet"}, **group, **instances}


LATER = {f"ec2:{name}" for name in ("DeleteNetworkInterface", "DeleteTags", "ModifyInstanceAttribute")}


@pytest.mark.parametrize("missing", sorted({*SERVICE_ACTIONS} - {"ec2:TerminateInstances", "kms:*", *LATER}))
def test_a_right_that_the_service_role_lacks_ends_the_cluster(site, missing):
    """terraform-aws-modules/terraform-aws-emr#3 and others have the words."""
    role = site.make_service_role(without=missing)
    reason = site.refuse(ServiceRole=role, Instances=make_private())
    assert reason.startswith(
        f"VALIDATION_ERROR: Service role arn:aws:iam::123456789012:role/{role} has insufficient EC2 permissions. "
        "EC2 Message: You are not authorized to perform this operation. "
    )
    assert missing.rstrip("*") in reason


def test_a_role_that_may_not_terminate_instances_is_reported(site):
    role = site.make_service_role(without="ec2:TerminateInstances")
    sample = site.launch(ServiceRole=role, Instances={"KeepJobFlowAliveWhenNoSteps": False}).bootstrap()
    sample.wait_for("TERMINATED")
    assert sample.cloud.seen("is not authorized to perform: ec2:TerminateInstances")


def list_interfaces(site):
    """Return the interfaces with the group for service access."""
    groups = [{"Name": "group-id", "Values": [site.ids["AccessGroup"]]}]
    return site.cloud.client("ec2").describe_network_interfaces(Filters=groups)["NetworkInterfaces"]


def read_tags(sample, *names):
    """Return the tags that resources of EC2 have without AWS's own, as texts, each once."""
    tags = sample.cloud.client("ec2").describe_tags(Filters=[{"Name": "resource-id", "Values": list(names)}])["Tags"]
    return {f"{tag['ResourceId']} {tag['Key']}={tag['Value']}" for tag in tags if not tag["Key"].startswith("aws:")}


def find_volumes(sample):
    """Return the volumes of the nodes."""
    attached = [{"Name": "attachment.instance-id", "Values": [node.id for node in sample.nodes]}]
    return sample.cloud.client("ec2").describe_volumes(Filters=attached)["Volumes"]


def test_emr_has_an_interface_of_its_own_in_a_private_subnet_for_as_long_as_the_cluster_lives(site):
    """Management Guide, "Working with Amazon EMR-managed security groups": the group is attached to it."""
    sample = site.launch(Instances=make_private(KeepJobFlowAliveWhenNoSteps=False))
    (interface,) = list_interfaces(site)
    assert read_tags(sample, interface["NetworkInterfaceId"]) == {f"{interface['NetworkInterfaceId']} team=learning"}
    assert interface["PrivateIpAddress"] not in {node.machine["address"] for node in sample.nodes}
    sample.bootstrap()
    sample.wait_for("TERMINATED")
    assert list_interfaces(site) == []


def test_tags_of_a_cluster_are_those_of_what_emr_made_for_it(site):
    """Management Guide, "Tag and categorize cluster resources" and "Tagging resources to use managed policies"."""
    sample = site.launch(Instances=make_private())
    volumes = [volume["VolumeId"] for volume in find_volumes(sample)]
    made = [node.id for node in sample.nodes] + volumes + [list_interfaces(site)[0]["NetworkInterfaceId"]]
    assert len(made) == 7
    sample.emr.add_tags(ResourceId=sample.id, Tags=[{"Key": "stage", "Value": "trial"}])
    assert read_tags(sample, *made) == {f"{name} {tag}" for name in made for tag in ("team=learning", "stage=trial")}
    sample.emr.remove_tags(ResourceId=sample.id, TagKeys=["team"])
    assert read_tags(sample, *made) == {f"{name} stage=trial" for name in made}
    tags = sample.emr.describe_cluster(ClusterId=sample.id)["Cluster"]["Tags"]
    assert [tag for tag in tags if not tag["Key"].startswith("aws:")] == [{"Key": "stage", "Value": "trial"}]


def test_protection_of_a_cluster_is_that_of_its_instances(launch):
    """Management Guide, "Using termination protection"."""
    sample = launch()

    def read(node):
        answer = sample.cloud.client("ec2").describe_instance_attribute(
            InstanceId=node.id, Attribute="disableApiTermination"
        )
        return answer["DisableApiTermination"]["Value"]

    for is_protected in (True, False):
        sample.emr.set_termination_protection(JobFlowIds=[sample.id], TerminationProtected=is_protected)
        assert [read(node) for node in sample.nodes] == [is_protected] * 3


@pytest.mark.parametrize("missing", sorted(LATER))
def test_a_right_that_a_role_lacks_later_is_reported_and_nothing_changes(site, missing):
    sample = site.launch(ServiceRole=site.make_service_role(without=missing), Instances=make_private())
    (interface,) = [each["NetworkInterfaceId"] for each in list_interfaces(site)]
    made = [sample.master.id, interface]
    before = read_tags(sample, *made)
    sample.emr.remove_tags(ResourceId=sample.id, TagKeys=["team"])
    assert (read_tags(sample, *made) == before) is (missing == "ec2:DeleteTags")
    for is_protected in (True, False):
        sample.emr.set_termination_protection(JobFlowIds=[sample.id], TerminationProtected=is_protected)
    sample.emr.terminate_job_flows(JobFlowIds=[sample.id])
    sample.wait_for("TERMINATED")
    assert sample.cloud.seen(f"is not authorized to perform: {missing}")
    is_left = bool(list_interfaces(site))
    assert is_left is (missing == "ec2:DeleteNetworkInterface")
    if is_left:
        sample.cloud.client("ec2").delete_network_interface(NetworkInterfaceId=interface)


def test_the_key_of_the_disks_encrypts_volumes_and_reaches_the_nodes(site):
    sample = site.launch(SecurityConfiguration={"Ref": "Encrypted"})
    configuration = sample.emr.describe_cluster(ClusterId=sample.id)["Cluster"]["SecurityConfiguration"]
    assert configuration == site.ids["Encrypted"]
    assert sample.master.bootstrap()["disk_key"].endswith(f":key/{site.ids['Key']}")
    keys = {(volume["Encrypted"], volume["KmsKeyId"].rpartition("/")[2]) for volume in find_volumes(sample)}
    assert keys == {(True, site.ids["Key"])}


def test_a_role_that_may_not_use_the_key_of_the_volumes_ends_the_cluster(site):
    """gchq/sleeper#3447 has the words; without EBS encryption the service role needs no key."""
    role = site.make_service_role(without="kms:*")
    assert site.refuse(SecurityConfiguration={"Ref": "Encrypted"}, ServiceRole=role).startswith(
        "VALIDATION_ERROR: Amazon EMR couldn't launch the cluster because the KMS key is invalid."
    )
    assert len(site.launch(SecurityConfiguration={"Ref": "DisksEncrypted"}, ServiceRole=role).nodes) == 3


MANAGED = {"ServiceRole": {"Ref": "ManagedRole"}, "Tags": [MARK]}
"""A service role with AWS's policy and the right to pass the role of the instances, and the tag of that policy."""


@pytest.mark.parametrize(
    ("change", "denied"),
    [
        ({"ServiceRole": {"Ref": "NarrowManagedRole"}}, "iam:PassRole"),
        ({"Instances": {"Ec2SubnetId": {"Ref": "UnmarkedSubnet"}}}, "ec2:RunInstances"),
        (
            {"Instances": {"EmrManagedSlaveSecurityGroup": {"Ref": "UnmarkedGroup"}}},
            "ec2:AuthorizeSecurityGroupIngress",
        ),
        ({"Tags": []}, "ec2:RunInstances"),
    ],
    ids=["pass", "subnet", "group", "cluster"],
)
def test_the_managed_policy_wants_its_tag_and_a_right_to_pass_the_role(refuse, change, denied):
    """Management Guide, "Tagging resources to use managed policies"; it passes EMR_EC2_DefaultRole alone."""
    assert f"is not authorized to perform: {denied} on resource" in refuse(**MANAGED | change)


def test_the_managed_policy_is_enough_with_its_tag(launch):
    assert len(launch(**MANAGED, Instances=make_private()).nodes) == 3


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        (
            {"Ec2SubnetId": {"Ref": "LonelySubnet"}},
            "The VPC/subnet configuration was invalid: No route to any external sources detected in Route T",
        ),
        (
            make_private(access=""),
            "You must also specify a ServiceAccessSecurityGroup if you use custom security groups when creating a",
        ),
        (
            make_private(access="ClosedGroup"),
            "ServiceAccessSecurityGroup is missing ingress rule from EmrManagedMasterSecurityGroup on port 9443",
        ),
    ],
    ids=["no route", "no service group", "closed service group"],
)
def test_a_cluster_in_a_wrong_network_ends_with_the_reason(refuse, instances, message):
    assert refuse(Instances=instances).startswith(f"VALIDATION_ERROR: {message}")


def test_a_cluster_whose_roles_trust_another_service_ends_with_the_reason(site):
    other = site.make_profile("lambda.amazonaws.com")
    arn = f"arn:aws:iam::123456789012:role/{other}"
    assert site.refuse(ServiceRole=other) == f"VALIDATION_ERROR: EMR service role {arn} is invalid"
    assert site.refuse(JobFlowRole=other) == f"VALIDATION_ERROR: Failed to authorize instance profile {other}."


def test_a_full_region_ends_the_cluster_and_its_other_instances(refuse):
    reason = refuse(Name="full")
    assert reason.startswith("INTERNAL_ERROR: We currently do not have sufficient c5.2xlarge capacity")


OF_AWS = {"CustomAmiId": {"Ref": "Image"}}
"""A deep-learning image of AWS."""


def test_a_root_volume_must_hold_the_snapshot_of_the_image(refuse):
    """EC2's words: spore-host/spawn#25."""
    reason = refuse(**OF_AWS, EbsRootVolumeSize=60)
    assert re.search(r"Volume of size 60GB is smaller than snapshot 'snap-\w+', expect size >= 75GB", reason)


def test_a_custom_image_keeps_its_parts_and_gets_the_user_of_emr(launch):
    machine = launch(**OF_AWS, EbsRootVolumeSize=80).master.machine
    assert machine["login_user"] == "hadoop"
    assert all(part in machine["image_parts"] for part in ("'compilers'", "'python3.12'", "'emr'"))


@pytest.mark.parametrize(
    ("image", "kind", "is_ended"),
    [
        (OF_AWS, "g5.12xlarge", True),
        (OF_AWS, "m5.xlarge", False),
        ({"CustomAmiId": "ami-0123456789abcdef0"}, "g5.12xlarge", False),
    ],
    ids=["deep learning", "no instance store", "own"],
)
def test_an_image_that_takes_the_instance_store_before_emr_ends_the_cluster(refuse, image, kind, is_ended):
    """Management Guide, "Instance store": EMR formats it; what it does with devices in use is not known."""
    groups = make_template()["Resources"]["Cluster"]["Properties"]["Instances"]
    changed = {name: groups[name] | {"InstanceType": kind} for name in ("MasterInstanceGroup", "CoreInstanceGroup")}
    reason = refuse(Name="hopeless", **image, EbsRootVolumeSize=80, Instances=changed)
    assert (f"combines the instance store of {kind} before EMR can format it" in reason) is is_ended


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ReleaseLabel": "emr-seven"}, "The supplied release label is invalid: emr-seven."),
        ({"ReleaseLabel": "emr-5.8.0"}, "ReleaseLabel = 'emr-5.8.0' (only releases from emr-5.30.0 on)"),
        ({"ReleaseLabel": "emr-7.99.0"}, "The supplied release label is invalid: emr-7.99.0."),
        ({"ReleaseLabel": "emr-6.16.0"}, "The supplied release label is invalid: emr-6.16.0."),
        ({"Applications": [{"Name": "Hadoop"}, {"Name": "Sprak"}]}, "Applications must be those of EMR, got Sprak"),
        ({"JobFlowRole": "nobody"}, "Invalid InstanceProfile: nobody."),
        ({"Instances": {"Ec2SubnetId": "subnet-0"}}, "The supplied ecSubnetId is not valid."),
        ({"Instances": {"EmrManagedSlaveSecurityGroup": "sg-0"}}, "The security group 'sg-0' does not exist"),
        ({"Instances": {"Ec2KeyName": "nobodys"}}, "The key pair 'nobodys' does not exist"),
        ({"SecurityConfiguration": "none"}, "Security configuration with name 'none' does not exist."),
        ({"EbsRootVolumeSize": 8}, "EbsRootVolumeSize must be from 15 to 100, got 8"),
        ({"AutoTerminationPolicy": {"IdleTimeout": 59}}, "IdleTimeout must be from 60 to 604800, got 59"),
        (
            {"Steps": [{**make_step("a", "b"), "HadoopJarStep": {"Jar": "s3://b/own.jar"}}]},
            "HadoopJarStep.Jar = 's3://b/own.jar'",
        ),
        ({"Steps": [make_step("a")]}, "Args of command-runner.jar must have a command, got none"),
        ({"Steps": [make_step("a", "x" * 10_281)]}, "must have at most 10280 characters, got 10281"),
        (
            {
                "BootstrapActions": [
                    {"Name": "a", "ScriptBootstrapAction": {"Path": "s3://b/c", "Args": ["x" * 10_281]}}
                ]
            },
            "RunJobFlow.BootstrapActions.0.ScriptBootstrapAction.Args.0: must have at most 10280 characters",
        ),
        (
            {"Instances": {"MasterInstanceGroup": {"InstanceCount": 3, "InstanceType": "m5.xlarge"}}},
            "InstanceCount = 3",
        ),
        ({"AutoScalingRole": "x"}, "Cluster: AWS::EMR::Cluster property AutoScalingRole"),
        ({"Instances": {"Placement": {}}}, "Cluster: AWS::EMR::Cluster property Instances.Placement"),
        (
            {"Instances": {"CoreInstanceGroup": {"InstanceCount": 1, "InstanceType": "m5.none"}}},
            "(m5.none) is not suppo",
        ),
    ],
)
def test_a_request_that_emr_refuses_fails_the_stack(refuse, change, message):
    assert message in refuse(**change)


IDLE_SECONDS = 120
"""Idle time of a policy, where a minute takes half a second: the primary is measured four times until it is over."""


@pytest.fixture
def idling(running):
    """Return a cluster with an auto-termination policy, whose primary runs a step of no end and was busy until now."""
    sample = running(AutoTerminationPolicy={"IdleTimeout": IDLE_SECONDS})
    sample.master.busy_seconds = 0.0  # or a slow start of the step would be idle time
    sample.add_steps(make_step("job", "sleep", "inf"))
    sample.master.order("step")
    sample.master.busy_seconds = None
    return sample


def measure(sample, times):
    """Let the primary be measured so often, or until its cluster ends; return whether the cluster goes on."""
    for _ in range(times):
        if sample.status()["State"] != "RUNNING":
            return False
        sample.master.order("measure")
        sample.master.measure()
    return sample.status()["State"] == "RUNNING"


def test_a_step_that_runs_does_not_keep_a_cluster_from_ending_by_its_policy(idling):
    """Management Guide, "Using an auto-termination policy": no active YARN applications, and no pending steps."""
    assert not measure(idling, 20)
    assert idling.wait_for("TERMINATED")["Code"] == "ALL_STEPS_COMPLETED"
    assert idling.step_states() == {"job": "CANCELLED"}


def test_a_step_that_waits_keeps_a_cluster(idling):
    """The same page; a step waits behind the one that runs."""
    idling.add_steps(make_step("next", "true"))
    assert measure(idling, 8)
    idling.emr.cancel_steps(ClusterId=idling.id, StepIds=[idling.emr.list_steps(ClusterId=idling.id)["Steps"][0]["Id"]])
    assert not measure(idling, 20)


def test_the_file_isbusy_keeps_a_cluster_for_the_idle_time_after_its_last_touch(idling):
    """The same page: shell scripts and applications outside of YARN touch /emr/metricscollector/isbusy."""
    idling.master.busy_seconds = 0.1
    assert measure(idling, 8)
    idling.master.busy_seconds = 1000.0
    assert not measure(idling, 20)


@pytest.mark.parametrize(
    ("instances", "percent", "is_kept"),
    [
        ({}, 91, False),
        ({"UnhealthyNodeReplacement": True}, 91, False),
        ({"UnhealthyNodeReplacement": False}, 91, True),
        ({"TerminationProtected": True}, 91, True),
        ({}, 90, True),
    ],
)
def test_a_core_node_with_a_full_disk_is_replaced_unless_the_cluster_forbids_it(running, instances, percent, is_kept):
    """API Reference, SetUnhealthyNodeReplacement: a node is unhealthy if disk usage is above 90%."""
    sample = running(Instances=instances)
    full = sample.cores[0]
    for node in (sample.master, full):
        node.disk_percent = percent
        node.order("measure")
        node.measure()
    assert sample.instances()[full.id] == ("RUNNING" if is_kept else "TERMINATED")
    if not is_kept:
        assert sample.take_node().role == CORE
    assert sample.status()["State"] == "WAITING"


def test_who_runs_a_cluster_needs_the_right_to_pass_both_roles(site):
    """Service Authorization Reference, "Actions defined by Amazon Elastic MapReduce": RunJobFlow depends on it."""
    may_pass = allow("iam:PassRole", {"Fn::GetAtt": ["ServiceRole", "Arn"]})
    profile = site.make_profile(EC2, allow("elasticmapreduce:RunJobFlow"), may_pass)
    sample = site.launch(JobFlowRole=profile)
    request = {
        "Name": "another",
        "ReleaseLabel": "emr-7.14.0",
        "ServiceRole": site.ids["ServiceRole"],
        "JobFlowRole": profile,
        "Instances": {"InstanceGroups": []},
    }
    with pytest.raises(ClientError, match=rf"perform: iam:PassRole on resource: arn:aws:iam::\d+:role/{profile}"):
        sample.cloud.client("emr", sample.master.machine).run_job_flow(**request)


def test_encrypted_logs_need_the_role_of_the_instances_to_use_the_key(running):
    """A bucket's default key is not in use where the upload names one (S3 User Guide, "Specifying SSE-KMS")."""
    key = "arn:aws:kms:us-east-1:123456789012:key/logs"
    sample = running(LogEncryptionKmsKeyId=key)
    (step,) = sample.add_steps(make_step("a", "true"))
    order = sample.master.order("step")
    assert (order["id"], order["log_key"]) == (step, key)
    upload = {"Bucket": "logs", "Key": "a", "Body": b"", "ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key}
    with pytest.raises(ClientError, match=r"is not authorized to perform: kms:GenerateDataKey on resource: arn"):
        sample.cloud.client("s3", sample.master.machine).put_object(**upload)


def test_a_log_that_a_node_cannot_write_is_a_finding_even_of_a_cluster_that_ends(running):
    sample = running()
    sample.emr.terminate_job_flows(JobFlowIds=[sample.id])
    sample.master.ask("report", event="log-lost", target="/logs/a.gz", error="s3 answers 404: NoSuchBucket")
    text = sample.cloud.observation("log /logs/a.gz is lost")["text"]
    assert text == "s3:PutObject: log /logs/a.gz is lost: s3 answers 404: NoSuchBucket"


def test_a_node_may_ask_for_its_cluster_with_the_right_to_it_alone(running):
    sample = running()
    own = sample.cloud.client("emr", sample.master.machine)
    with pytest.raises(ClientError, match=r"is not authorized to perform: elasticmapreduce:ListInstances on resource"):
        own.list_instances(ClusterId=sample.id)


def test_where_no_instance_boots_a_cluster_waits_at_once_and_is_deleted(open_site):
    sample = open_site(waits_for_signals=False).deploy(Steps=[make_step("a", "true")])
    sample.cloud.observation(f"{sample.stack} CREATE_COMPLETE")
    assert sample.step_states() == {"a": "PENDING"}
    sample.cloud.client("cloudformation").delete_stack(StackName=sample.stack)
    sample.cloud.observation(f"{sample.stack} DELETE_COMPLETE")
