"""The actions of injections: a row each, from which the reader of `[[inject]]` and the carrying out follow."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NewType

from cdk_rehearsal.errors import RehearsalError
from deeplearning_contract.names import ROLE_TAG, NodeRole
from deeplearning_rehearsal.cases.format.case import Injection

if TYPE_CHECKING:  # Reading a case needs neither machines nor an embedded AWS.
    from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
    from cdk_rehearsal.lab import Lab
    from cdk_rehearsal.run.fleet import Fleet
    from cdk_rehearsal.run.timeline import Timeline
    from deeplearning_rehearsal.cases.node_files import NodeFiles
    from deeplearning_rehearsal.submitted_jobs import SubmittedJobs
    from deeplearning_rehearsal.training_jobs import TrainingJobs

SecondsOrNever = NewType("SecondsOrNever", float)
"""None where the case file says `never`."""
_USER_DATA = "/var/lib/cloud/instance/scripts/part-001"
_AGENT_RETURNS_SECONDS = 120.0
_INTERVAL_SECONDS = 0.2
_LANE = "injected"
POISON = (
    "not JSON",
    "[]",
    "null",
    "{}",
    '{"cluster": 7, "generation": "many", "stage": null}',
    json.dumps({"cluster": "another-cluster", "generation": 10**9, "stage": "failed", "instance_id": "i-0"}),
    json.dumps({"nested": [[[["deep"]]]] * 50}),
    "x" * 200_000,
    "\u2028\u0085 \U0001f4a3",
)
"""Messages that a queue may deliver: no JSON, the wrong shape, the wrong cluster, deep, long, and odd characters."""


@dataclass
class Actions:
    """Carries out injections on the machines of the lab and on the embedded AWS."""

    lab: "Lab"
    fleet: "Fleet"
    aws: "EmbeddedAws"
    timeline: "Timeline"
    files: "NodeFiles"
    jobs: "TrainingJobs | None" = None
    submitted: "SubmittedJobs | None" = None
    _timers: list[threading.Timer] = field(default_factory=list)

    def act(self, injection: Injection, instance_id: str) -> None:
        """
        Carry out an injection and return when the fault has struck; raises RehearsalError if it could not be carried
        out.
        """
        self.timeline.report(_LANE, f"{injection} ({injection.when.text}) {self._name(instance_id)}".rstrip())
        action = ACTIONS[injection.do]
        action.act(self, *([instance_id] if action.has_target else []), **injection.options)

    def close(self) -> None:
        """Forget what was to happen later."""
        for timer in self._timers:
            timer.cancel()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Act in so many seconds, unless the case has ended."""
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def declare_dead(self, instance_id: str) -> None:
        """Let EC2 declare a machine dead."""
        if self.aws.fail_instance(instance_id):
            self.timeline.report(_LANE, f"EC2 finds {self._name(instance_id)} dead")

    def run(self, instance_id: str, line: str) -> None:
        """Run a shell line as root; raises RehearsalError if it fails."""
        answer = self.lab.run(instance_id, ["bash", "-c", line])
        if answer.returncode != 0:
            raise RehearsalError(f"{line} ended with status {answer.returncode}: {answer.stderr.strip()[-300:]}")

    def await_agent(self, instance_id: str, action: Callable[[], None]) -> None:
        """Act, and wait until the node's agent has run again; raises RehearsalError if it does not."""
        self.files.remember(instance_id)
        lines = self.fleet.count_lines(instance_id)
        action()
        give_up = time.monotonic() + _AGENT_RETURNS_SECONDS
        while self.fleet.count_lines(instance_id) == lines:
            if time.monotonic() > give_up:
                raise RehearsalError(f"the agent of {instance_id} must run again, it has logged nothing")
            time.sleep(_INTERVAL_SECONDS)

    def power_off(self, node: str, found_dead_after: float | None) -> None:
        """Cut a machine's power; EC2 finds it dead so much later, or never."""
        self.fleet.cut_power(node)
        if found_dead_after is not None:
            self.later(found_dead_after, lambda: self.declare_dead(node))

    def announce_interruption(self, node: str, seconds: float) -> None:
        """Announce that EC2 takes a machine back in so many seconds, and take it back."""
        self.lab.node(node).metadata.announce_interruption(seconds)
        self.later(seconds, lambda: self._take_back(node))

    def _take_back(self, node: str) -> None:
        self.fleet.cut_power(node)
        self.declare_dead(node)

    def slow_metadata(self, node: str, seconds: float) -> None:
        """Let a machine's metadata service answer so much later."""
        from cdk_rehearsal.lab.node_faults import MetadataFault  # noqa: PLC0415 - see above

        self.lab.node(node).metadata.fault = MetadataFault(delay_seconds=seconds)

    def send_poison(self) -> None:
        """Send malformed messages to every queue and topic."""
        queues, topics = self.aws.place.client("sqs"), self.aws.place.client("sns")
        for resource in self.aws.wait(0).resources:
            for body in POISON:
                if resource.resource_type == "AWS::SQS::Queue":
                    queues.send_message(QueueUrl=resource.physical_id, MessageBody=body)
                elif resource.resource_type == "AWS::SNS::Topic":
                    topics.publish(TopicArn=resource.physical_id, Message=body)

    def set_workers(self, count: int) -> None:
        """Set the desired capacity of the workers' groups."""
        scaling = self.aws.place.client("autoscaling")
        role = {"Name": f"tag:{ROLE_TAG}", "Values": [NodeRole.WORKER.value]}
        for group in scaling.describe_auto_scaling_groups(Filters=[role])["AutoScalingGroups"]:
            scaling.set_desired_capacity(AutoScalingGroupName=group["AutoScalingGroupName"], DesiredCapacity=count)

    def tag_cluster(self, key: str, value: str) -> None:
        """Give every cluster on EMR a tag; take it with an empty value."""
        emr = self.aws.place.client("emr")
        for cluster in emr.list_clusters()["Clusters"]:
            if value:
                emr.add_tags(ResourceId=cluster["Id"], Tags=[{"Key": key, "Value": value}])
            else:
                emr.remove_tags(ResourceId=cluster["Id"], TagKeys=[key])

    def protect_cluster(self, is_protected: bool) -> None:  # noqa: FBT001 - the key of a case file
        """Turn the termination protection of every cluster on EMR on or off."""
        emr = self.aws.place.client("emr")
        names = [cluster["Id"] for cluster in emr.list_clusters()["Clusters"]]
        emr.set_termination_protection(JobFlowIds=names, TerminationProtected=is_protected)

    def find_jobs(self) -> "TrainingJobs":
        if self.jobs is None:
            raise RehearsalError("the stack must have training jobs, it has none")
        return self.jobs

    def kill_container(self, number: int) -> None:
        """End all processes of a container of the newest training job."""
        self.find_jobs().containers.find(f"algo-{number}").kill()

    def stop_job(self) -> None:
        """Stop the newest training job, or the job of the case on EKS."""
        (self.submitted or self.find_jobs()).stop()

    def find_submitted(self) -> "SubmittedJobs":
        if self.submitted is None:
            raise RehearsalError("the stack must have jobs on EKS, it has none")
        return self.submitted

    def power_off_node(self, pod: int, found_dead_after: float | None) -> None:
        """Cut the power of the node of a pod; EC2 finds it dead so much later, or never."""
        node = self.find_submitted().power_off_node(pod)
        if found_dead_after is not None:
            self.later(found_dead_after, lambda: self.declare_dead(node))

    def delete_addon(self, name: str) -> None:
        """Delete an add-on of every cluster on EKS."""
        eks = self.aws.place.client("eks")
        for cluster in eks.list_clusters()["clusters"]:
            eks.delete_addon(clusterName=cluster, addonName=name)

    def deny(self, action: str) -> None:
        """Let a policy of every role deny an action."""
        iam = self.aws.place.client("iam")
        statement = {"Effect": "Deny", "Action": action, "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        for role in iam.list_roles()["Roles"]:
            iam.put_role_policy(RoleName=role["RoleName"], PolicyName="Denied", PolicyDocument=document)

    def interrupt_job(self) -> None:
        """Take the spot capacity of the newest training job back; raises RehearsalError if it has none."""
        name = self.find_jobs().names()[0]
        if not self.find_jobs().interrupt(name):
            raise RehearsalError(f"training job {name} must run on spot capacity, it does not")

    def delete_mount_targets(self) -> None:
        """Delete the mount targets of all file systems."""
        efs = self.aws.place.client("efs")
        for system in efs.describe_file_systems()["FileSystems"]:
            for target in efs.describe_mount_targets(FileSystemId=system["FileSystemId"])["MountTargets"]:
                efs.delete_mount_target(MountTargetId=target["MountTargetId"])

    def revoke_member_rules(self) -> None:
        """Remove the rules by which security groups admit their own members."""
        ec2 = self.aws.place.client("ec2")
        for group in ec2.describe_security_groups()["SecurityGroups"]:
            name = group["GroupId"]
            own = [
                rule
                for rule in group["IpPermissions"]
                if any(pair["GroupId"] == name for pair in rule.get("UserIdGroupPairs", ()))
            ]
            if own and group["GroupName"] != "default":
                ec2.revoke_security_group_ingress(GroupId=name, IpPermissions=own)

    def _name(self, instance_id: str) -> str:
        return f"{self.fleet.lane(instance_id)} {instance_id}" if instance_id else ""


_REQUIRED = object()


@dataclass(frozen=True)
class Option:
    """An option of an action: the type of its value in a case file, and its default; without one it is required."""

    kind: Any
    default: Any = _REQUIRED

    @property
    def is_required(self) -> bool:
        """True if the file must give it."""
        return self.default is _REQUIRED


@dataclass(frozen=True)
class Action:
    """
    A row of `ACTIONS`.

    Attributes:
        meaning: A few words for the list of actions.
        act: Takes the `Actions`, the target's instance id where there is one, and the options.
        stops_ranks: Whether training feels it, so that recovery is measured from then on.
    """

    meaning: str
    act: Callable[..., None]
    options: Mapping[str, Option] = field(default_factory=dict)
    has_target: bool = True
    stops_ranks: bool = False


ACTIONS: Mapping[str, Action] = {
    "power_off": Action(
        "the machine dies; EC2 finds it dead later, in truth after minutes, or never",
        Actions.power_off,
        {"found_dead_after": Option(SecondsOrNever, 20.0)},
        stops_ranks=True,
    ),
    "silence": Action(
        "all packets of the machine are dropped, while it goes on running",
        lambda actions, node: actions.lab.node(node).link.set_up(up=False),
        stops_ranks=True,
    ),
    "restore": Action(
        "a silenced machine is heard again", lambda actions, node: actions.lab.node(node).link.set_up(up=True)
    ),
    "reboot": Action(
        "the machine loses power and starts again with its disk",
        lambda actions, node: actions.await_agent(node, lambda: actions.lab.reboot(node)),
        stops_ranks=True,
    ),
    "fail_instance": Action(
        "EC2 finds the running machine dead, so that its group replaces it",
        lambda actions, node: actions.declare_dead(node),
        stops_ranks=True,
    ),
    "run_user_data_again": Action(
        "the machine's user data runs a second time",
        lambda actions, node: actions.await_agent(node, lambda: actions.run(node, _USER_DATA)),
    ),
    "spot_notice": Action(
        "EC2 announces, two minutes before as a rule, that it takes the machine back, and does",
        Actions.announce_interruption,
        {"seconds": Option(float, 120.0)},
        stops_ranks=True,
    ),
    "set_gpus": Action(
        "nvidia-smi shows so many GPUs and uncorrected ECC errors, so much later",
        lambda actions, node, **gpus: actions.lab.node(node).set_gpus(**gpus),
        {"count": Option(int), "ecc_errors": Option(int, 0), "answer_seconds": Option(float, 0.0)},
    ),
    "break_mounts": Action(
        "mounts that begin now hang, or do not resolve their server, for a time",
        lambda actions, node, trouble, seconds: actions.lab.node(node).break_mounts(trouble, seconds),
        {"trouble": Option(Literal["hang", "unresolvable"]), "seconds": Option(float)},
    ),
    "fill_disk": Action(
        "the machine's disk is full, but for a rest",
        lambda actions, node, free_mib: actions.lab.node(node).disk.fill(free_mib << 20),
        {"free_mib": Option(int, 0)},
    ),
    "slow_metadata": Action(
        "the metadata service answers so much later", Actions.slow_metadata, {"seconds": Option(float)}
    ),
    "stop_sshd": Action(
        "the machine's SSH server stops", lambda actions, node: actions.lab.node(node).control_sshd("stop")
    ),
    "start_sshd": Action("it starts again", lambda actions, node: actions.lab.node(node).control_sshd("start")),
    "run": Action(
        "a shell line runs as root on the machine",
        lambda actions, node, line: actions.run(node, line),
        {"line": Option(str)},
    ),
    "send_poison": Action("malformed messages are put on every queue and topic", Actions.send_poison, has_target=False),
    "age_groups": Action(
        "Auto Scaling says that its groups were made so much earlier, as if so much time had passed",
        lambda actions, seconds: actions.aws.age_groups(seconds),
        {"seconds": Option(float)},
        has_target=False,
    ),
    "set_workers": Action(
        "the operator sets the desired capacity of the workers",
        Actions.set_workers,
        {"count": Option(int)},
        has_target=False,
    ),
    "tag_cluster": Action(
        "the operator gives a cluster on EMR a tag, or takes it with an empty value",
        Actions.tag_cluster,
        {"key": Option(str), "value": Option(str)},
        has_target=False,
    ),
    "submit_job": Action("the job is submitted again", lambda actions: actions.find_jobs().start(), has_target=False),
    "submit_other_job": Action(
        "on EKS another job of the same program is submitted, in a queue of Kueue if one is given",
        lambda actions, **options: actions.find_submitted().submit_other(**options),
        {"name": Option(str), "queue": Option(str, ""), "gpus_per_member": Option(int, 0)},
        has_target=False,
    ),
    "delete_pod": Action(
        "somebody deletes the pod of this index",
        lambda actions, pod: actions.find_submitted().delete_pod(pod),
        {"pod": Option(int)},
        has_target=False,
    ),
    "exhaust_memory": Action(
        "the kernel kills the container of the pod of this index for want of memory",
        lambda actions, pod: actions.find_submitted().exhaust_memory(pod),
        {"pod": Option(int)},
        has_target=False,
    ),
    "power_off_node": Action(
        "the node of the pod of this index dies; EC2 finds it dead later, in truth after minutes, or never",
        Actions.power_off_node,
        {"pod": Option(int), "found_dead_after": Option(SecondsOrNever, 20.0)},
        has_target=False,
    ),
    "delete_addon": Action(
        "the clusters on EKS lose an add-on", Actions.delete_addon, {"name": Option(str)}, has_target=False
    ),
    "deny": Action("a policy of every role denies an action", Actions.deny, {"action": Option(str)}, has_target=False),
    "stop_job": Action("the job is stopped", Actions.stop_job, has_target=False),
    "interrupt_job": Action(
        "SageMaker takes the spot capacity of the newest training job back",
        Actions.interrupt_job,
        has_target=False,
    ),
    "kill_container": Action(
        "all processes of a container of the training job end",
        Actions.kill_container,
        {"number": Option(int)},
        has_target=False,
    ),
    "remove_from_image": Action(
        "the image of containers lacks a file",
        lambda actions, path: actions.find_jobs().containers.absent.append(path),
        {"path": Option(str)},
        has_target=False,
    ),
    "delete_mount_targets": Action(
        "the file systems lose their mount targets", Actions.delete_mount_targets, has_target=False
    ),
    "revoke_member_rules": Action(
        "security groups do not admit their own members any more", Actions.revoke_member_rules, has_target=False
    ),
    "protect_cluster": Action(
        "the operator protects a cluster on EMR from termination, or no longer",
        Actions.protect_cluster,
        {"is_protected": Option(bool)},
        has_target=False,
    ),
}
