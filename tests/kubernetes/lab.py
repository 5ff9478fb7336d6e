"""A cluster for one statement: what `prepare-cluster` applies, nodes, and jobs as `submit` applies them."""

import time
from dataclasses import replace

from cdk_rehearsal.kubernetes.users import User
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.kubernetes_cluster import make_cluster_objects
from deeplearning_contract.jobs.kubernetes_job import JOB_LABEL, make_job
from deeplearning_contract.jobs.submission import SubmissionSettings
from tests.kubernetes.client import MERGE, Client, locate
from tests.kubernetes.kubelet import Kubelet
from tests.real_time import GENEROUS_SECONDS
from tests.unit.deeplearning_contract.test_kubernetes_job import KUBERNETES

START_FILES = {"start_pod.py": "print()"}
GRACE_SECONDS = 10
"""Time without a renewed lease after which a node is lost."""
STEP_SECONDS = (1.0,) * 10 + (5.0,) * 40
"""By which the clock of the stand-in advances while a statement waits: longer than whatever it waits for."""
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
SETTINGS = replace(KUBERNETES, gpu_count=2, efa_count=0)
ROLE = "arn:aws:iam::111122223333:role/Researchers"
USERS = {"submitter": User(ROLE, ("eks:submitters",))}
_POLICY = "rbac.authorization.k8s.io"


class Lab:
    """Namespace, nodes and clients of a statement."""

    def __init__(self, plane, number):
        self.plane, self.namespace = plane, f"{SETTINGS.namespace}-{number}"
        self.settings = replace(SETTINGS, namespace=self.namespace)
        self.admin, self.submitter = Client(plane, plane.token), Client(plane, "submitter")
        self.kubelet = Kubelet(plane, self.admin)
        self._prefix = f"ip-10-0-{number}"

    def open(self):
        """Join a node of the system and two of members, and prepare the namespace."""
        self.kubelet.join(f"{self._prefix}-5", {}, {})
        for number in (6, 7):
            self.join_member(number)
        self.prepare()

    def prepare(self):
        """Apply what jobs need, and let submitters in."""
        for each in make_cluster_objects(self.settings, START_FILES):
            answer = self.admin.apply(each)
            assert answer.code in (200, 201), answer
        subject = {"kind": "Group", "apiGroup": _POLICY, "name": "eks:submitters"}
        role = {"apiGroup": _POLICY, "kind": "ClusterRole", "name": "edit"}
        binding = {"metadata": {"name": "submitters"}, "roleRef": role, "subjects": [subject]}
        self.admin.do("POST", locate("rolebindings", self.namespace), binding)
        self.until(lambda: self.admin.get("persistentvolumes", "", "nfs-data")["status"]["phase"] == "Bound")

    def close(self):
        """Remove what the next statement would meet."""
        for each in [each["metadata"] for each in self.admin.list("daemonsets")]:
            path = locate("daemonsets", each["namespace"], each["name"])
            self.admin.call("DELETE", path, {"propagationPolicy": "Background"})
        self.remove_jobs()
        for claim in self.admin.list("persistentvolumeclaims", self.namespace):
            self.admin.call("DELETE", locate("persistentvolumeclaims", self.namespace, claim["metadata"]["name"]))
        for volume in self.admin.list("persistentvolumes"):
            self.admin.call("DELETE", locate("persistentvolumes", name=volume["metadata"]["name"]))
        for node in self.admin.list("nodes"):
            self.admin.call("DELETE", locate("nodes", name=node["metadata"]["name"]))
        self.kubelet.nodes.clear()
        self.until(self.is_empty, "nothing is left")
        self.kubelet.stop()

    def remove_jobs(self):
        """Remove the Jobs of the namespace, and their pods at once."""
        for job in self.list_jobs():
            path = locate("jobs", self.namespace, job["metadata"]["name"])
            self.admin.call("DELETE", path, {"propagationPolicy": "Background"})
        for pod in self.admin.list("pods", self.namespace):
            path = locate("pods", self.namespace, pod["metadata"]["name"])
            self.admin.call("DELETE", path, {"gracePeriodSeconds": 0})

    def is_empty(self):
        """Return whether the cluster has no nodes and volumes any more, and the namespace no pods."""
        kinds = ("nodes", "persistentvolumes")
        return not (self.admin.list("pods", self.namespace) or any(map(self.admin.list, kinds)))

    def join_member(self, number):
        """Join a node of members with two GPUs."""
        self.kubelet.join(f"{self._prefix}-{number}", {"deeplearning/member": "true"}, {"nvidia.com/gpu": "2"}, [TAINT])

    def until(self, condition, what=""):
        """Let nodes act and time pass until a condition is true; return its value."""
        give_up, steps = time.monotonic() + GENEROUS_SECONDS, 0
        while True:
            self.kubelet.step()
            if found := condition():
                return found
            is_over = steps == len(STEP_SECONDS) if self.plane.is_stand_in else time.monotonic() > give_up
            assert not is_over, f"it never happened: {what or condition}"
            self.plane.pass_time(STEP_SECONDS[min(steps, len(STEP_SECONDS) - 1)])
            steps += 1

    def make(self, name, **values):
        """Return the Job of a definition."""
        submission = SubmissionSettings("eks", "Train", "root", "assets", "jobs/", kubernetes=self.settings)
        return make_job(submission, JobDefinition(name, ("python3", "train.py"), **values), secret="00" * 32)

    def submit(self, name, **values):
        """Apply a Job as a submitter."""
        answer = self.submitter.apply(self.make(name, **values))
        assert answer.code == 201, answer

    def run(self, name, members=2, **values):
        """Apply a Job, and return its pods when all run."""
        self.submit(name, members=members, **values)
        return self.until(lambda: self.get_running(name, members), f"all pods of {name} run")

    def get_running(self, name, members):
        """Return the running pods of a Job in the order of their indexes; nothing when not all run."""
        pods = [pod for pod in self.list_pods(name) if is_running(pod)]
        return sorted(pods, key=get_index) if len(pods) == members else None

    def list_pods(self, name):
        """Return the pods of a Job."""
        return self.admin.list("pods", self.namespace, labelSelector=f"{JOB_LABEL}={name}")

    def list_jobs(self):
        """Return the Jobs of the namespace."""
        return self.admin.list("jobs", self.namespace)

    def get_status(self, name):
        """Return the status of a Job."""
        return self.admin.get("jobs", self.namespace, name)["status"]

    def list_ends(self, name):
        """Return the conditions of a Job as `type/reason`."""
        conditions = self.get_status(name).get("conditions", ())
        return [f"{each['type']}/{each['reason']}" for each in conditions if each["status"] == "True"]

    def await_end(self, name):
        """Return the conditions of a Job that has ended."""
        ended = ("Complete", "Failed")
        self.until(lambda: any(each.split("/")[0] in ended for each in self.list_ends(name)), f"{name} ends")
        return self.list_ends(name)

    def await_successor(self, pod):
        """Return the running pod that has taken the place of another."""
        name, uid = pod["metadata"]["labels"][JOB_LABEL], pod["metadata"]["uid"]

        def find():
            pods = [each for each in self.list_pods(name) if get_index(each) == get_index(pod) and is_running(each)]
            return next((each for each in pods if each["metadata"]["uid"] != uid), None)

        return self.until(find, f"index {get_index(pod)} of {name} has another pod")

    def find_event(self, reason, about=""):
        """Return the words of an event; nothing when there is none of its reason about such an object."""
        events = self.admin.list("events", self.namespace)
        found = (each for each in events if each["reason"] == reason and about in each["involvedObject"]["name"])
        return next((each["message"] for each in found), "")

    def suspend(self, name, *, is_suspended):
        """Suspend a Job, or let it go on."""
        path = locate("jobs", self.namespace, name)
        return self.submitter.do("PATCH", path, {"spec": {"suspend": is_suspended}}, MERGE)


def get_index(pod):
    """Return the index of a pod."""
    return int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])


def is_running(pod):
    """Return whether a pod runs and is not deleted."""
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]


def get_disruptions(pod):
    """Return the reasons for which a pod was the target of a disruption."""
    conditions = pod["status"].get("conditions", ())
    return [each["reason"] for each in conditions if each["type"] == "DisruptionTarget" and each["status"] == "True"]
