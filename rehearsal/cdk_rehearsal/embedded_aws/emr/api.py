"""
The EMR API in front of the driver, with the refusals of AWS.

A field of a request that the rehearsal does not act upon is refused, and never ignored.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import moto.emr.urls
from moto.core.responses import ActionResult, EmptyResult
from moto.emr.exceptions import InvalidRequestException, ValidationException

from cdk_rehearsal.embedded_aws.emr.cluster import ACTIVE_STEPS, ENDED, Cluster, InstanceGroup, Step
from cdk_rehearsal.embedded_aws.emr.driver import EmrDriver
from cdk_rehearsal.embedded_aws.emr.request_check import check_request, check_steps
from cdk_rehearsal.embedded_aws.server.stand_in_api import StandInApi

_PAGE = 50
_MOST_ACTIVE_STEPS = 256
_CANCELLATIONS = ("SEND_INTERRUPT", "TERMINATE_PROCESS")


class EmrApi(StandInApi):
    """Operations of EMR that a cluster's owner uses."""

    service = "emr"
    error = InvalidRequestException
    driver: ClassVar[EmrDriver]
    place: ClassVar[Any]

    def run_job_flow(self) -> ActionResult:
        request = _plain(self._get_params())
        try:
            check_request(request, self.place, self.driver.security_configurations)
            steps = self._read_steps(request.get("Steps", []), request.get("StepConcurrencyLevel", 1))
        except ValueError as error:
            raise ValidationException(str(error)) from error
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
            if cluster.state in ("TERMINATING", *ENDED):
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
        return EmptyResult()

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

    def _find_cluster(self, parameter: str = "ClusterId", name: str = "") -> Cluster:
        name = name or str(self._get_param(parameter))
        cluster = self.driver.clusters.get(name)
        if cluster is None:
            raise InvalidRequestException(f"Cluster id '{name}' is not valid.")
        return cluster

    def _read_steps(self, steps: Sequence[Mapping[str, Any]], concurrency: Any) -> list[Step]:
        try:
            check_steps(steps, int(concurrency))
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


def install_emr_api(driver: EmrDriver, place: Any) -> None:
    """Replace moto's API with one for the clusters of a driver."""
    EmrApi.driver, EmrApi.place = driver, place
    EmrApi.install(moto.emr.urls.url_paths)


def _plain(value: Any) -> Any:
    """Return a request as plain values, without what was not given."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items() if entry is not None}
    return [_plain(entry) for entry in value] if isinstance(value, Iterable) and not isinstance(value, str) else value
