"""
The EMR API in front of the driver, with the refusals of AWS.

A field of a request that the rehearsal does not act upon is refused, and never ignored.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import moto.emr.urls
from botocore.exceptions import ClientError
from moto.core.responses import ActionResult, EmptyResult
from moto.emr.exceptions import InvalidRequestException, ValidationException

from cdk_rehearsal.embedded_aws.base.stand_in_api import StandInApi
from cdk_rehearsal.embedded_aws.emr.cluster import ACTIVE_STEPS, Cluster, InstanceGroup, Step
from cdk_rehearsal.embedded_aws.emr.driver import EmrDriver
from cdk_rehearsal.embedded_aws.emr.releases import check_release
from cdk_rehearsal.place import Place
from cdk_rehearsal.referees.service_models import judge_request

_PAGE = 50
_MOST_ACTIVE_STEPS = 256
_CANCELLATIONS = ("SEND_INTERRUPT", "TERMINATE_PROCESS")
_FIELDS = {
    *("Name", "LogUri", "LogEncryptionKmsKeyId", "ReleaseLabel", "Instances", "Steps", "BootstrapActions"),
    *("Applications", "Configurations", "VisibleToAllUsers", "JobFlowRole", "ServiceRole", "Tags"),
    *("SecurityConfiguration", "CustomAmiId", "EbsRootVolumeSize", "OSReleaseLabel", "StepConcurrencyLevel"),
    "AutoTerminationPolicy",
}
_INSTANCE_FIELDS = {
    *("InstanceGroups", "Ec2KeyName", "Ec2SubnetId", "KeepJobFlowAliveWhenNoSteps", "TerminationProtected"),
    *("UnhealthyNodeReplacement", "EmrManagedMasterSecurityGroup", "EmrManagedSlaveSecurityGroup"),
    *("ServiceAccessSecurityGroup", "AdditionalMasterSecurityGroups", "AdditionalSlaveSecurityGroups"),
}
_GROUP_FIELDS = {"Name", "Market", "InstanceRole", "InstanceType", "InstanceCount"}
_MOST_ACTIONS, _MOST_STEPS = 16, 256
_IDLE = (60, 604_800)
_ROOT_GIB = (15, 100)
"""Smallest and largest root volume; the larger bound is that of the first releases that had the option."""
_ACTIONS_ON_FAILURE = ("TERMINATE_CLUSTER", "TERMINATE_JOB_FLOW", "CANCEL_AND_WAIT", "CONTINUE")
COMMAND_RUNNER = "command-runner.jar"
_SCRIPT_RUNNER = re.compile(r"s3://[a-z0-9.-]*elasticmapreduce/libs/script-runner/script-runner\.jar")


class EmrApi(StandInApi):
    """Operations of EMR that a cluster's owner uses."""

    service = "emr"
    error = InvalidRequestException
    driver: ClassVar[EmrDriver]
    place: ClassVar[Place]

    def run_job_flow(self) -> ActionResult:
        request = _plain(self._get_params())
        try:
            check_request(request, self.place, self.driver.security_configurations)
            _check_model("RunJobFlow", request)
        except ValueError as error:
            raise ValidationException(str(error)) from error
        steps = self._read_steps(request.get("Steps", []), request.get("StepConcurrencyLevel", 1))
        groups = sorted(request["Instances"]["InstanceGroups"], key=lambda group: group["InstanceRole"] != "MASTER")
        made = [
            InstanceGroup(
                group["InstanceRole"],
                group["InstanceType"],
                int(group["InstanceCount"]),
                group.get("Name") or group["InstanceRole"],
            )
            for group in groups
        ]
        cluster = self.driver.run(request, made, steps)
        return ActionResult({"JobFlowId": cluster.id, "ClusterArn": cluster.arn})

    def describe_cluster(self) -> ActionResult:
        with self.driver.lock:
            return ActionResult({"Cluster": self._find_cluster().to_api()})

    def list_clusters(self) -> ActionResult:
        states = self._get_param("ClusterStates", [])
        with self.driver.lock:
            newest = sorted(self.driver.clusters.values(), key=lambda each: each.created, reverse=True)
            rows = [each.summarize() for each in newest if not states or each.state in states]
        return self._page("Clusters", rows)

    def list_instances(self) -> ActionResult:
        group_id, states = self._get_param("InstanceGroupId"), self._get_param("InstanceStates", [])
        roles = self._get_param("InstanceGroupTypes", [])
        with self.driver.lock:
            rows = [
                entry.to_api()
                for entry in self._find_cluster().instances
                if group_id in (None, entry.group_id)
                and (not states or entry.state in states)
                and (not roles or entry.role in roles)
            ]
        return self._page("Instances", rows)

    def list_instance_groups(self) -> ActionResult:
        with self.driver.lock:
            cluster = self._find_cluster()
            return self._page("InstanceGroups", [cluster.describe_group(group) for group in cluster.groups])

    def list_bootstrap_actions(self) -> ActionResult:
        actions = self._find_cluster().request.get("BootstrapActions", [])
        rows = [
            {
                "Name": action["Name"],
                "ScriptPath": action["ScriptBootstrapAction"]["Path"],
                "Args": action["ScriptBootstrapAction"].get("Args", []),
            }
            for action in actions
        ]
        return self._page("BootstrapActions", rows)

    def add_job_flow_steps(self) -> ActionResult:
        if self._get_param("ExecutionRoleArn"):
            raise ValidationException("the rehearsal runs steps with the role of the instances, got ExecutionRoleArn")
        with self.driver.lock:
            cluster = self._find_cluster("JobFlowId")
            if cluster.is_ending:
                raise ValidationException(
                    "A job flow that is shutting down, terminated, or finished may not be modified."
                )
            level = int(cluster.request.get("StepConcurrencyLevel", 1))
            steps = self._read_steps(_plain(self._get_param("Steps", [])), level)
            if sum(step.state in ACTIVE_STEPS for step in (*cluster.steps, *steps)) > _MOST_ACTIVE_STEPS:
                raise ValidationException(
                    "Maximum number of active steps(State = 'Running', 'Pending' or 'Cancel_Pending') for cluster "
                    "exceeded."
                )
            self.driver.add_steps(cluster, steps)
        return ActionResult({"StepIds": [step.id for step in steps]})

    def list_steps(self) -> ActionResult:
        """Return steps, newest first."""
        states, ids = self._get_param("StepStates", []), self._get_param("StepIds", [])
        with self.driver.lock:
            rows = [
                step.to_api()
                for step in reversed(self._find_cluster().steps)
                if (not states or step.state in states) and (not ids or step.id in ids)
            ]
        return self._page("Steps", rows)

    def describe_step(self) -> ActionResult:
        with self.driver.lock:
            step = self._find_cluster().find_step(self._get_param("StepId"))
            if step is None:
                raise InvalidRequestException(f"Step id '{self._get_param('StepId')}' is not valid.")
            return ActionResult({"Step": step.to_api()})

    def cancel_steps(self) -> ActionResult:
        """Submit cancellations; the answer says which steps could be cancelled."""
        option = self._get_param("StepCancellationOption", if_none="SEND_INTERRUPT")
        if option not in _CANCELLATIONS:
            raise InvalidRequestException(f"StepCancellationOption must be one of {_CANCELLATIONS}, got {option}")
        answers = []
        with self.driver.lock:
            cluster = self._find_cluster()
            for step_id in self._get_param("StepIds", []):
                step = cluster.find_step(step_id)
                answer = {"StepId": step_id, "Status": "SUBMITTED"}
                if step is None or step.state not in ("PENDING", "RUNNING"):
                    why = "is not valid" if step is None else f"is already {step.state}"
                    answer |= {"Status": "FAILED", "Reason": f"Step {step_id} {why}"}
                else:
                    self.driver.cancel_step(cluster, step, by_force=option == "TERMINATE_PROCESS")
                answers.append(answer)
            self.driver.add_steps(cluster, [])
        return ActionResult({"CancelStepsInfoList": answers})

    def terminate_job_flows(self) -> ActionResult:
        with self.driver.lock:
            clusters = [self._find_cluster(name=name) for name in self._get_param("JobFlowIds", [])]
            if any(cluster.settings.get("TerminationProtected", False) for cluster in clusters):
                raise ValidationException(
                    "Could not shut down one or more job flows since they are termination protected."
                )
        for cluster in clusters:
            self.driver.terminate(cluster, "USER_REQUEST", "Terminated by user request")
        return EmptyResult()

    def set_termination_protection(self) -> ActionResult:
        with self.driver.lock:
            for name in self._get_param("JobFlowIds", []):
                cluster = self._find_cluster(name=name)
                settings = {**cluster.settings, "TerminationProtected": bool(self._get_param("TerminationProtected"))}
                cluster.request = {**cluster.request, "Instances": settings}
                self.driver.provisioner.protect(cluster, is_protected=settings["TerminationProtected"])
        return EmptyResult()

    def add_tags(self) -> ActionResult:
        new = {tag["Key"]: str(tag.get("Value") or "") for tag in self._get_param("Tags", [])}
        return self._change_tags("create", new, lambda tags: tags | new)

    def remove_tags(self) -> ActionResult:
        keys = self._get_param("TagKeys", [])
        return self._change_tags(
            "delete", dict.fromkeys(keys, ""), lambda tags: {key: tags[key] for key in tags if key not in keys}
        )

    def create_security_configuration(self) -> ActionResult:
        name, text = self._get_param("Name"), self._get_param("SecurityConfiguration")
        try:
            json.loads(text)
        except ValueError as error:
            raise InvalidRequestException(f"Invalid security configuration: {error}") from error
        if name in self.driver.security_configurations:
            raise InvalidRequestException(f"SecurityConfiguration with name '{name}' already exists.")
        self.driver.security_configurations[name] = text
        return ActionResult({"Name": name})

    def delete_security_configuration(self) -> ActionResult:
        self.driver.security_configurations.pop(self._get_param("Name"), None)
        return EmptyResult()

    def _change_tags(
        self, verb: str, changed: Mapping[str, str], change: Callable[[dict[str, str]], dict[str, str]]
    ) -> ActionResult:
        """Change the tags of a cluster, and of what EMR has made for it."""
        with self.driver.lock:
            cluster = self._find_cluster("ResourceId")
            tags = [{"Key": key, "Value": value} for key, value in change(cluster.tags).items()]
            cluster.request = {**cluster.request, "Tags": tags}
            self.driver.provisioner.change_tags(cluster, verb, changed)
        return EmptyResult()

    def _find_cluster(self, parameter: str = "ClusterId", name: str = "") -> Cluster:
        name = name or str(self._get_param(parameter))
        cluster = self.driver.clusters.get(name)
        if cluster is None:
            raise InvalidRequestException(f"Cluster id '{name}' is not valid.")
        return cluster

    def _read_steps(self, steps: Sequence[Mapping[str, Any]], concurrency: Any) -> list[Step]:
        try:
            check_steps(steps, int(concurrency))
            _check_model("AddJobFlowSteps", {"Steps": steps})
        except ValueError as error:
            raise ValidationException(str(error)) from error
        return [
            Step(
                step["Name"],
                step["HadoopJarStep"]["Jar"],
                list(step["HadoopJarStep"].get("Args", [])),
                # AWS documents no default; this one is the hardest on a step that fails.
                step.get("ActionOnFailure") or "TERMINATE_CLUSTER",
                "",
            )
            for step in steps
        ]

    def _page(self, name: str, rows: Sequence[Any]) -> ActionResult:
        begin = int(self._get_param("Marker", if_none="0"))
        more = {"Marker": str(begin + _PAGE)} if len(rows) > begin + _PAGE else {}
        return ActionResult({name: rows[begin : begin + _PAGE], **more})


def install_emr_api(driver: EmrDriver, place: Place) -> None:
    """Replace moto's API with one for the clusters of a driver."""
    EmrApi.driver, EmrApi.place = driver, place
    EmrApi.install(moto.emr.urls.url_paths)


def _plain(value: Any) -> Any:
    """Return a request as plain values, without what was not given."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items() if entry is not None}
    return [_plain(entry) for entry in value] if isinstance(value, Iterable) and not isinstance(value, str) else value


def check_request(request: Mapping[str, Any], place: Place, security_configurations: Mapping[str, str]) -> None:
    """Raise ValueError, with EMR's message where one is public, for a request that EMR or the rehearsal refuses."""
    _require_fields("RunJobFlow", request, _FIELDS)
    check_release(request)
    for name in ("JobFlowRole", "ServiceRole"):
        if not request.get(name):
            raise ValueError(f"{name} is required for creating cluster.")
    _check_instances(request["Instances"], place)
    _check_profile(str(request["JobFlowRole"]), place)
    _check_limits(request)
    configuration = request.get("SecurityConfiguration")
    if configuration and configuration not in security_configurations:
        raise ValueError(f"Security configuration with name '{configuration}' does not exist.")


def check_steps(steps: Sequence[Mapping[str, Any]], concurrency: int) -> None:
    """Raise ValueError for steps that EMR or the rehearsal refuses."""
    if len(steps) > _MOST_STEPS:
        raise ValueError(f"a request must have at most {_MOST_STEPS} steps, got {len(steps)}")
    for step in steps:
        config, action = step["HadoopJarStep"], step.get("ActionOnFailure")
        jar, arguments = str(config["Jar"]), config.get("Args", [])
        if set(config) - {"Jar", "Args"}:
            raise ValueError(f"the rehearsal runs the arguments of a step alone, got {sorted(config)}")
        if jar != COMMAND_RUNNER and not _SCRIPT_RUNNER.fullmatch(jar):
            raise ValueError(f"the rehearsal runs {COMMAND_RUNNER} and script-runner.jar, got Jar {jar}")
        if not arguments:
            raise ValueError(f"Args of {jar} must have a command, got none")
        if action is not None and action not in _ACTIONS_ON_FAILURE:
            raise ValueError(f"ActionOnFailure must be one of {_ACTIONS_ON_FAILURE}, got {action}")
        if concurrency > 1 and action != "CONTINUE":
            # EMR API Reference, StepConfig: it refuses other actions of steps that may run at the same time.
            raise ValueError(f"ActionOnFailure must be CONTINUE where StepConcurrencyLevel exceeds 1, got {action}")


def _check_model(operation: str, request: Mapping[str, Any]) -> None:
    """Raise ValueError for what is outside of the limits of the service's own model."""
    for finding in judge_request("emr", operation, request, operation):
        raise ValueError(str(finding))


def _require_fields(what: str, values: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(values) - known):
        raise ValueError(f"the rehearsal does not implement {unknown} of {what}")


def _check_instances(settings: Mapping[str, Any], place: Place) -> None:
    _require_fields("Instances", settings, _INSTANCE_FIELDS)
    groups = settings.get("InstanceGroups", [])
    roles = [group["InstanceRole"] for group in groups]
    if sorted(roles) not in (["MASTER"], ["CORE", "MASTER"]):
        raise ValueError(f"the rehearsal has one group for the primary and one for core nodes, got {roles}")
    for group in groups:
        _require_fields("InstanceGroups", group, _GROUP_FIELDS)
        if group.get("Market", "ON_DEMAND") != "ON_DEMAND":
            raise ValueError(f"the rehearsal has instances on demand alone, got Market {group['Market']}")
        if group["InstanceRole"] == "MASTER" and int(group["InstanceCount"]) != 1:
            raise ValueError(f"the rehearsal has one primary, got InstanceCount {group['InstanceCount']}")
        if int(group["InstanceCount"]) < 1:
            raise ValueError(f"InstanceCount of an instance group must be at least 1, got {group['InstanceCount']}")
    ec2 = place.client("ec2")
    try:
        vpc = ec2.describe_subnets(SubnetIds=[settings["Ec2SubnetId"]])["Subnets"][0]["VpcId"]
    except (ClientError, KeyError) as error:  # dimajix/terraform-emr-training#1
        raise ValueError("The supplied ecSubnetId is not valid.") from error
    _check_security_groups(settings, ec2, vpc)
    key = settings.get("Ec2KeyName")
    if key and key not in {pair["KeyName"] for pair in ec2.describe_key_pairs()["KeyPairs"]}:
        raise ValueError(f"The key pair '{key}' does not exist")


def _check_security_groups(settings: Mapping[str, Any], ec2: Any, vpc: str) -> None:
    managed = [settings.get(f"EmrManaged{kind}SecurityGroup") for kind in ("Master", "Slave")]
    if not all(managed):
        raise ValueError(
            "the rehearsal requires EmrManagedMasterSecurityGroup and EmrManagedSlaveSecurityGroup: groups that EMR "
            "makes outlive the cluster, and their VPC cannot be deleted"
        )
    more = [name for kind in ("Master", "Slave") for name in settings.get(f"Additional{kind}SecurityGroups", [])]
    for name in filter(None, [*managed, *more, settings.get("ServiceAccessSecurityGroup")]):
        try:
            owner = ec2.describe_security_groups(GroupIds=[name])["SecurityGroups"][0]["VpcId"]
        except ClientError as error:
            raise ValueError(f"The security group '{name}' does not exist") from error
        if owner != vpc:
            raise ValueError(f"security group {name} must be in the VPC of the subnet, {vpc}, got {owner}")


def _check_profile(name: str, place: Place) -> None:
    """Check the instance profile, as hashicorp/terraform-provider-aws retries on EMR's messages about it."""
    try:
        profile = place.client("iam").get_instance_profile(InstanceProfileName=name.rpartition("/")[2])
    except ClientError as error:
        raise ValueError(f"Invalid InstanceProfile: {name}.") from error
    if not profile["InstanceProfile"]["Roles"]:
        raise ValueError(f"Failed to authorize instance profile {profile['InstanceProfile']['Arn']}.")


def _check_limits(request: Mapping[str, Any]) -> None:
    actions = request.get("BootstrapActions", [])
    if len(actions) > _MOST_ACTIONS:  # AWS re:Post, "bootstrap action or a step": up to 16
        raise ValueError(f"a cluster must have at most {_MOST_ACTIONS} bootstrap actions, got {len(actions)}")
    for action in actions:
        path = str(action["ScriptBootstrapAction"]["Path"])
        if not path.startswith(("s3://", "file:/")):
            raise ValueError(f"Path of a bootstrap action must be in S3 or begin with file:, got {path}")
    idle = request.get("AutoTerminationPolicy", {}).get("IdleTimeout")
    limits = {
        "IdleTimeout": (idle, _IDLE),  # Management Guide, "Using an auto-termination policy"
        "StepConcurrencyLevel": (request.get("StepConcurrencyLevel"), (1, _MOST_STEPS)),
        "EbsRootVolumeSize": (request.get("EbsRootVolumeSize"), _ROOT_GIB),
    }
    for name, (value, (low, high)) in limits.items():
        if value is not None and not low <= int(value) <= high:
            raise ValueError(f"{name} must be from {low} to {high}, got {value}")
