"""
Statements about the answers of a control plane, the same for the stand-in and for real servers.

The expected words are those of Kubernetes 1.36.2, from its servers. `KUBERNETES_BINARIES=<folder>` runs the same file
against the servers of a folder.
"""

import copy
import json
import re
from dataclasses import replace

import pytest

from deeplearning_contract.jobs.kubernetes_cluster import make_cluster_objects
from tests.kubernetes.client import MERGE, Client, locate
from tests.kubernetes.lab import ROLE, START_FILES, get_disruptions, get_index

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
FOREGROUND, BACKGROUND = {"propagationPolicy": "Foreground"}, {"propagationPolicy": "Background"}


def delete_pod(lab, pod):
    lab.submitter.do("DELETE", locate("pods", lab.namespace, pod["metadata"]["name"]))


def evict(lab, pod):
    metadata = {"name": pod["metadata"]["name"], "namespace": lab.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    return lab.admin.call("POST", locate("pods", lab.namespace, metadata["name"], "eviction"), eviction)


# --- Objects ------------------------------------------------------------------------------------------


def test_applying_an_object_twice_changes_nothing(lab):
    lab.submit("twice")
    path = locate("jobs", lab.namespace, "twice")
    lab.until(lambda: len(lab.list_pods("twice")) == 2)
    for each in [*make_cluster_objects(lab.settings, START_FILES), lab.make("twice")]:
        first, second = (lab.admin.apply(each).document["metadata"] for _ in range(2))
        managers = [entry["manager"] for entry in second["managedFields"] if not entry.get("subresource")]
        assert managers.count("deeplearning-cdk") == 1
        assert (first.get("generation", 1), second.get("generation", 1)) == (1, 1)
        if each["kind"] != "Job":  # whose status changes meanwhile
            assert first["resourceVersion"] == second["resourceVersion"]
    assert lab.admin.do("GET", path)["metadata"]["generation"] == 1


def test_an_unknown_field_is_refused_by_its_name(lab):
    job = lab.make("unknown")
    job["metadata"].pop("namespace")
    job["spec"]["completionMod"] = job["spec"].pop("completionMode")
    path = locate("jobs", lab.namespace, "unknown")
    answer = lab.submitter.call("PATCH", f"{path}?fieldManager=x&force=true", job, "application/apply-patch+yaml")
    assert answer.code == 500
    words = "failed to create typed patch object (/unknown; batch/v1, Kind=Job): .spec.completionMod"
    assert answer.message == f"{words}: field not declared in schema"
    assert lab.admin.get("jobs", lab.namespace, "unknown") is None


def test_a_dry_run_says_what_would_be_and_changes_nothing(lab):
    answer = lab.submitter.apply(lab.make("dry"), dryRun="All")
    assert (answer.code, answer.document["spec"]["suspend"]) == (201, False)
    assert lab.admin.get("jobs", lab.namespace, "dry") is None


def test_another_template_of_a_job_is_refused(lab):
    lab.submit("fixed")
    job = lab.make("fixed")
    job["spec"]["template"]["spec"]["containers"][0]["image"] = "another"
    answer = lab.submitter.apply(job)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.message.startswith('Job.batch "fixed" is invalid: spec.template: Invalid value: ')
    assert answer.message.endswith(": field is immutable")


def test_a_field_of_another_manager_is_a_conflict_unless_forced(lab):
    lab.submit("owned")
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "owned", "namespace": lab.namespace}}
    job["spec"] = {"parallelism": 1}
    answer = lab.submitter.apply(job, manager="another", force=False)
    assert answer.code == 409
    assert answer.message == 'Apply failed with 1 conflict: conflict with "deeplearning-cdk": .spec.parallelism'
    assert lab.submitter.apply(job, manager="another").document["spec"]["parallelism"] == 1


def test_a_field_that_is_no_longer_applied_goes(lab):
    lab.submit("labelled")
    job = lab.make("labelled")
    job["metadata"]["labels"]["extra"] = "yes"
    assert lab.submitter.apply(job).document["metadata"]["labels"]["extra"] == "yes"
    assert "extra" not in lab.submitter.apply(lab.make("labelled")).document["metadata"]["labels"]


def test_an_object_that_does_not_exist_is_named(lab):
    answer = lab.submitter.call("GET", locate("jobs", lab.namespace, "absent"))
    assert (answer.code, answer.reason) == (404, "NotFound")
    assert answer.message == 'jobs.batch "absent" not found'


def test_a_watch_tells_changes_and_what_leaves_its_selection(lab):
    job = lab.make("watched")
    job["spec"]["suspend"] = True  # The status of one that goes on changes too.
    assert lab.submitter.apply(job).code == 201
    lab.until(lambda: lab.list_ends("watched") == ["Suspended/JobSuspended"])
    version = lab.submitter.do("GET", locate("jobs", lab.namespace))["metadata"]["resourceVersion"]
    path = locate("jobs", lab.namespace, "watched")
    for colour in ("red", "blue"):
        lab.submitter.do("PATCH", path, {"metadata": {"labels": {"colour": colour}}}, MERGE)
    query = f"watch=true&resourceVersion={version}&timeoutSeconds=1&labelSelector=colour%3Dred"
    events = [json.loads(line) for line in lab.submitter.stream(f"{locate('jobs', lab.namespace)}?{query}")]
    shown = [(each["type"], each["object"]["metadata"]["labels"]["colour"]) for each in events]
    assert [kind for kind, _ in shown] == ["ADDED", "DELETED"]


# --- Rights -------------------------------------------------------------------------------------------


def test_a_token_that_the_review_refuses_is_401(lab):
    answer = Client(lab.plane, "k8s-aws-v1.forged").call("GET", locate("pods", lab.namespace))
    assert (answer.code, answer.message, answer.reason) == (401, "Unauthorized", "Unauthorized")


def test_a_submitter_is_refused_secrets_of_the_system_volumes_and_jobs_of_other_namespaces(lab):
    answer = lab.submitter.call("GET", locate("secrets", "kube-system"))
    assert (answer.code, answer.reason) == (403, "Forbidden")
    words = f'User "{ROLE}" cannot list resource "secrets" in API group "" in the namespace "kube-system"'
    assert answer.message == f"secrets is forbidden: {words}"
    volume = next(
        each for each in make_cluster_objects(lab.settings, START_FILES) if each["kind"] == "PersistentVolume"
    )
    answer = lab.submitter.apply(volume)
    assert answer.code == 403
    words = f'User "{ROLE}" cannot patch resource "persistentvolumes" in API group "" at the cluster scope'
    assert answer.message == f'persistentvolumes "nfs-data" is forbidden: {words}'
    job = lab.make("elsewhere")
    job["metadata"]["namespace"] = "default"
    answer = lab.submitter.apply(job)
    assert answer.code == 403
    words = f'User "{ROLE}" cannot patch resource "jobs" in API group "batch" in the namespace "default"'
    assert answer.message == f'jobs.batch "elsewhere" is forbidden: {words}'


def test_a_submitter_may_do_what_submit_jobs_logs_and_stop_do(lab):
    pod = lab.run("allowed")[0]
    assert lab.submitter.call("GET", locate("jobs", lab.namespace)).code == 200
    assert lab.submitter.call("GET", locate("events", lab.namespace)).code == 200
    path = locate("pods", lab.namespace, pod["metadata"]["name"], "log")
    assert [*lab.submitter.stream(path)] == []
    lab.suspend("allowed", is_suspended=True)
    assert lab.submitter.call("DELETE", locate("jobs", lab.namespace, "allowed"), BACKGROUND).code == 200


def test_a_user_may_ask_what_it_may_do(lab):
    def ask(verb, resource, namespace):
        asked = {"verb": verb, "resource": resource, "group": "batch" * (resource == "jobs"), "namespace": namespace}
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        review = {**kind, "spec": {"resourceAttributes": asked}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return lab.submitter.do("POST", path, review)["status"]["allowed"]

    assert ask("create", "jobs", lab.namespace)
    assert not ask("create", "jobs", "default")
    assert not ask("list", "secrets", "kube-system")


# --- Volumes ------------------------------------------------------------------------------------------


def test_the_claim_binds_its_volume(lab):
    volume = lab.admin.get("persistentvolumes", "", "nfs-data")
    claim = lab.admin.get("persistentvolumeclaims", lab.namespace, "nfs-external")
    assert (volume["status"]["phase"], claim["status"]["phase"]) == ("Bound", "Bound")
    assert (volume["spec"]["claimRef"]["namespace"], volume["spec"]["claimRef"]["name"]) == (
        lab.namespace,
        "nfs-external",
    )
    assert claim["status"]["capacity"] == {"storage": "85Gi"}
    assert claim["status"]["accessModes"] == ["ReadWriteMany"]


def test_the_table_of_volumes_has_the_line_of_the_predecessor(lab):
    table = lab.admin.call("GET", locate("persistentvolumes"), accept=TABLE).document
    (cells,) = (row["cells"] for row in table["rows"])
    claim = f"{lab.namespace}/nfs-external"
    assert cells[:7] == ["nfs-data", "85Gi", "RWX", "Retain", "Bound", claim, "nfs-external"]


def test_a_claim_above_every_free_volume_stays_pending(lab):
    objects = {each["kind"]: copy.deepcopy(each) for each in make_cluster_objects(lab.settings, START_FILES)}
    volume, claim = objects["PersistentVolume"], objects["PersistentVolumeClaim"]
    volume["metadata"]["name"] = "free"
    volume["spec"].pop("claimRef")
    claim["spec"].pop("volumeName")
    assert lab.admin.apply(volume).code == 201
    lab.until(lambda: lab.admin.get("persistentvolumes", "", "free")["status"]["phase"] == "Available")
    claim["metadata"]["name"] = "larger"
    claim["spec"]["resources"] = {"requests": {"storage": "100Gi"}}
    assert lab.admin.apply(claim).code == 201
    words = lab.until(lambda: lab.find_event("ProvisioningFailed", "larger"))
    assert words == 'storageclass.storage.k8s.io "nfs-external" not found'
    assert lab.admin.get("persistentvolumeclaims", lab.namespace, "larger")["status"]["phase"] == "Pending"
    claim["metadata"]["name"] = "fitting"
    claim["spec"]["resources"] = {"requests": {"storage": "85Gi"}}
    assert lab.admin.apply(claim).code == 201
    path = ("persistentvolumeclaims", lab.namespace, "fitting")
    lab.until(lambda: lab.admin.get(*path)["status"]["phase"] == "Bound")
    assert lab.admin.get("persistentvolumes", "", "free")["spec"]["claimRef"]["name"] == "fitting"


def test_a_volume_that_is_given_to_another_claim_is_given_back(lab):
    reference = {"spec": {"claimRef": {"namespace": "default"}}}
    path = locate("persistentvolumes", name="nfs-data")
    lab.admin.do("PATCH", path, reference, MERGE)

    def is_back():
        volume = lab.admin.do("GET", path)
        return volume["spec"]["claimRef"]["namespace"] == lab.namespace and volume["status"]["phase"] == "Bound"

    lab.until(is_back)
    assert lab.admin.get("persistentvolumeclaims", lab.namespace, "nfs-external")["status"]["phase"] == "Bound"


# --- DaemonSets ---------------------------------------------------------------------------------------


def make_daemons(lab, **spec):
    """Return a DaemonSet of the namespace that takes each node of members."""
    container = {"name": "a", "image": "a"}
    pod = {"nodeSelector": {"deeplearning/member": "true"}, "containers": [container], **spec}
    template = {"metadata": {"labels": {"app": "plugin"}}, "spec": pod}
    selector = {"matchLabels": {"app": "plugin"}}
    metadata = {"name": "plugin", "namespace": lab.namespace}
    spec = {"selector": selector, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def list_daemons(lab):
    """Return the nodes on which pods of the DaemonSet run."""
    pods = lab.admin.list("pods", lab.namespace, labelSelector="app=plugin")
    return sorted(pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running")


def test_a_daemon_set_has_a_pod_on_each_node_that_it_selects_and_tolerates(lab):
    lab.admin.apply(make_daemons(lab))
    path = ("daemonsets", lab.namespace, "plugin")
    lab.until(lambda: lab.admin.get(*path)["status"].get("observedGeneration"))
    assert lab.admin.get(*path)["status"]["desiredNumberScheduled"] == 0
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    lab.admin.do("PATCH", locate(*path), {"spec": {"template": {"spec": {"tolerations": tolerations}}}}, MERGE)
    found = lab.until(lambda: (nodes := list_daemons(lab)) and len(nodes) == 2 and nodes)
    lab.join_member(8)
    lab.until(lambda: len(list_daemons(lab)) == 3)
    assert set(found) < set(list_daemons(lab))
    lab.until(lambda: lab.admin.get(*path)["status"]["numberReady"] == 3)
    lab.admin.do("DELETE", locate(*path), BACKGROUND)
    lab.until(lambda: not lab.admin.list("pods", lab.namespace))


# --- Pod Security -------------------------------------------------------------------------------------


def test_no_pod_of_a_submitter_leaves_its_container_and_its_job_says_why(lab):
    job = lab.make("hostile", members=1)
    spec = job["spec"]["template"]["spec"]
    spec["containers"][0]["securityContext"] = {"privileged": True}
    answer = lab.submitter.apply(job)
    assert answer.code == 201
    detail = 'privileged (container "member" must not set securityContext.privileged=true)'
    assert f'would violate PodSecurity "baseline:latest": {detail}' in answer.warnings[0].replace("\\", "")
    words = lab.until(lambda: lab.find_event("FailedCreate", "hostile"))
    end = f'is forbidden: violates PodSecurity "baseline:latest": {detail}'
    assert re.fullmatch(r'Error creating: pods "hostile-0-(.....)?" ' + re.escape(end), words)
    assert lab.list_pods("hostile") == []
    pod = {"metadata": {"name": "own"}, "spec": {**spec, "hostNetwork": True}}
    answer = lab.submitter.call("POST", locate("pods", lab.namespace), pod)
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert f"host namespaces (hostNetwork=true), {detail}" in answer.message


def test_a_submitter_changes_neither_the_label_of_the_namespace_nor_who_may_what(lab):
    open_namespace = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    path = locate("namespaces", name=lab.namespace)
    assert lab.submitter.call("PATCH", path, open_namespace, MERGE).code == 403
    assert lab.submitter.call("DELETE", path).code == 403
    made = {"metadata": {"name": "own"}}
    assert lab.submitter.call("POST", locate("namespaces"), made).code == 403
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": ROLE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {**made, "roleRef": role, "subjects": [subject]}
    assert lab.submitter.call("POST", locate("rolebindings", lab.namespace), binding).code == 403
    assert lab.submitter.call("POST", locate("clusterrolebindings"), binding).code == 403
    bound = locate("rolebindings", lab.namespace, "submitters")
    assert lab.submitter.call("PATCH", bound, {"subjects": []}, MERGE).code == 403


# --- Scheduler ----------------------------------------------------------------------------------------


def await_words(lab, pattern):
    """Wait for the scheduler's words, at the beginning of an event."""

    def list_words():
        return [e["message"] for e in lab.admin.list("events", lab.namespace) if e["reason"] == "FailedScheduling"]

    lab.until(lambda: any(re.match(pattern, words) for words in list_words()), f"{pattern} among {list_words()}")


def test_the_scheduler_says_that_nodes_lack_gpus(lab):
    job = lab.make("greedy")
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "8"
    assert lab.submitter.apply(job).code == 201
    words = (
        "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient nvidia.com/gpu. "
    )
    await_words(lab, re.escape(words))
    pod = lab.list_pods("greedy")[0]
    (condition,) = (each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"].startswith(words)


def test_the_scheduler_says_that_pods_do_not_tolerate_a_taint(lab):
    job = lab.make("untolerant")
    del job["spec"]["template"]["spec"]["tolerations"]
    assert lab.submitter.apply(job).code == 201
    start = re.escape("0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, ")
    taint = r"2 node\(s\) had untolerated taint(\(s\)| \{nvidia.com/gpu: present\})\. "
    await_words(lab, start + taint)


def test_two_pods_of_a_job_do_not_share_a_node(lab):
    lab.settings = replace(lab.settings, members=3)
    lab.submit("apart", gpus_per_member=1)
    start = "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
    await_words(lab, re.escape(start + "2 node(s) didn't match pod anti-affinity rules. "))
    lab.join_member(8)
    pods = lab.until(lambda: lab.get_running("apart", 3))
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 3


def test_a_pod_waits_for_a_claim_that_is_not_there(lab):
    job = lab.make("claimless")
    job["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "absent"
    assert lab.submitter.apply(job).code == 201
    await_words(lab, re.escape('0/3 nodes are available: persistentvolumeclaim "absent" not found.'))


# --- Jobs ---------------------------------------------------------------------------------------------


def test_pods_have_an_index_a_host_name_and_the_node_that_the_job_asks_for(lab):
    pods = lab.run("indexed")
    nodes = {each["metadata"]["name"]: each["metadata"]["labels"] for each in lab.admin.list("nodes")}
    for index, pod in enumerate(pods):
        assert get_index(pod) == index
        assert pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == str(index)
        assert re.fullmatch(rf"indexed-{index}-[a-z0-9]{{5}}", pod["metadata"]["name"])
        assert pod["spec"]["hostname"] == f"indexed-{index}"
        assert nodes[pod["spec"]["nodeName"]]["deeplearning/member"] == "true"
        (variable,) = (e for e in pod["spec"]["containers"][0]["env"] if e["name"] == "JOB_COMPLETION_INDEX")
        path = variable["valueFrom"]["fieldRef"]["fieldPath"]
        assert path in [
            f"metadata.{kind}['batch.kubernetes.io/job-completion-index']" for kind in ("labels", "annotations")
        ]
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Job", "indexed", True)
    status = lab.until(lambda: (s := lab.get_status("indexed")).get("ready") == 2 and s)
    assert (status["active"], status.get("succeeded", 0), status.get("failed", 0)) == (2, 0, 0)


def test_success_of_index_0_ends_the_others_and_completes_the_job(lab):
    pods = lab.run("success")
    lab.kubelet.end(pods[0], 0)
    assert lab.await_end("success") == ["SuccessCriteriaMet/SuccessPolicy", "Complete/SuccessPolicy"]
    status = lab.get_status("success")
    assert (status["succeeded"], status["completedIndexes"], status.get("failed", 0)) == (1, "0", 0)
    assert status.get("active", 0) == 0
    lab.until(lambda: [pod["status"]["phase"] for pod in lab.list_pods("success")] == ["Succeeded"])
    assert lab.find_event("Completed", "success") == "Job completed"


def test_a_failure_counts_before_a_success_of_the_same_second(lab):
    pods = lab.run("both")
    lab.kubelet.end(pods[0], 0)
    lab.kubelet.end(pods[1], 1)
    assert lab.await_end("both") == ["FailureTarget/PodFailurePolicy", "Failed/PodFailurePolicy"]


def test_a_job_that_wants_fewer_pods_goes_on(lab):
    lab.run("fewer")
    path = locate("jobs", lab.namespace, "fewer")
    lab.submitter.do("PATCH", path, {"spec": {"parallelism": 1}}, MERGE)
    pods = lab.until(lambda: len(lab.list_pods("fewer")) == 1 and lab.get_running("fewer", 1))
    assert lab.list_ends("fewer") == []
    assert lab.get_status("fewer").get("failed", 0) == 0
    assert get_index(pods[0]) == 0


def test_success_of_another_index_ends_nothing(lab):
    pods = lab.run("early")
    lab.kubelet.end(pods[1], 0)
    status = lab.until(lambda: (s := lab.get_status("early")).get("succeeded") == 1 and s)
    assert (lab.list_ends("early"), status["completedIndexes"]) == ([], "1")
    assert [get_index(pod) for pod in lab.list_pods("early") if pod["status"]["phase"] == "Running"] == [0]
    lab.kubelet.end(pods[0], 0)
    assert lab.await_end("early")[-1].startswith("Complete/")


def test_exit_1_of_any_index_ends_the_job_at_once(lab):
    pods = lab.run("exit-1", retries=2)
    lab.kubelet.end(pods[1], 1)
    assert lab.await_end("exit-1") == ["FailureTarget/PodFailurePolicy", "Failed/PodFailurePolicy"]
    (message,) = {each["message"] for each in lab.get_status("exit-1")["conditions"]}
    name = f"{lab.namespace}/{pods[1]['metadata']['name']}"
    assert message == f"Container member for pod {name} failed with exit code 1 matching FailJob rule at index 1"
    assert lab.get_status("exit-1")["failed"] == 2
    assert lab.find_event("PodFailurePolicy", "exit-1") == message
    lab.until(lambda: not [pod for pod in lab.list_pods("exit-1") if pod["status"]["phase"] == "Running"])


def test_a_killed_program_is_retried_as_often_as_the_job_says(lab):
    pods = lab.run("killed", retries=1)
    lab.kubelet.end(pods[1], 137)
    successor = lab.await_successor(pods[1])
    assert successor["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "1"
    assert lab.list_ends("killed") == []
    lab.kubelet.end(successor, 137)
    ends = ["FailureTarget/MaxFailedIndexesExceeded", "Failed/MaxFailedIndexesExceeded"]
    assert lab.await_end("killed") == ends
    status = lab.get_status("killed")
    assert (status["failedIndexes"], status["failed"]) == ("1", 3)
    (message,) = {each["message"] for each in status["conditions"]}
    assert message == "Job has exceeded the specified maximal number of failed indexes"


def test_a_pod_deleted_by_hand_costs_a_retry(lab):
    pods = lab.run("deleted", retries=1)
    delete_pod(lab, pods[1])
    successor = lab.await_successor(pods[1])
    assert successor["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "1"
    delete_pod(lab, successor)
    assert lab.await_end("deleted")[-1] == "Failed/MaxFailedIndexesExceeded"


def test_a_pod_of_no_retries_deleted_by_hand_ends_the_job(lab):
    pods = lab.run("fragile")
    delete_pod(lab, pods[0])
    assert lab.await_end("fragile")[-1] == "Failed/MaxFailedIndexesExceeded"


def test_an_eviction_costs_no_retry(lab):
    pods = lab.run("evicted")
    answer = evict(lab, pods[1])
    assert answer.code == 201
    evicted = lab.until(lambda: next((p for p in lab.list_pods("evicted") if get_disruptions(p)), None))
    assert get_disruptions(evicted) == ["EvictionByEvictionAPI"]
    successor = lab.await_successor(pods[1])
    assert successor["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "0"
    status = lab.until(lambda: (s := lab.get_status("evicted")).get("ready") == 2 and s)
    assert (status.get("failed", 0), status["failedIndexes"], lab.list_ends("evicted")) == (0, "", [])


def test_pods_of_a_dead_node_move_once_the_node_is_gone_and_cost_no_retry(lab):
    pods = lab.run("moved")
    lab.join_member(8)
    node = pods[0]["spec"]["nodeName"]
    lab.kubelet.kill(node)
    pod = ("pods", lab.namespace, pods[0]["metadata"]["name"])
    lab.until(lambda: get_disruptions(lab.admin.get(*pod)) == ["DeletionByTaintManager"], "its pod is deleted")
    dead = lab.admin.get("nodes", "", node)
    (ready,) = (each["status"] for each in dead["status"]["conditions"] if each["type"] == "Ready")
    taints = {(each["key"], each["effect"]) for each in dead["spec"]["taints"]}
    assert ready == "Unknown"
    assert {("node.kubernetes.io/unreachable", effect) for effect in ("NoSchedule", "NoExecute")} <= taints
    assert lab.find_event("NodeNotReady", pods[0]["metadata"]["name"]) == "Node is not ready"
    words = f"Marking for deletion Pod {lab.namespace}/{pods[0]['metadata']['name']}"
    lab.until(lambda: words in [each["message"] for each in lab.admin.list("events", lab.namespace)], words)
    # Nobody can say that the program has ended while the node is there: no other pod takes its place.
    assert lab.admin.get(*pod)["status"]["phase"] == "Running"
    assert [p["metadata"]["name"] for p in lab.list_pods("moved") if get_index(p) == 0] == [pods[0]["metadata"]["name"]]
    lab.admin.do("DELETE", locate("nodes", name=node))
    successor = lab.await_successor(pods[0])
    assert successor["spec"]["nodeName"] not in (node, pods[1]["spec"]["nodeName"])
    assert successor["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "0"
    status = lab.until(lambda: (s := lab.get_status("moved")).get("ready") == 2 and s)
    assert (status.get("failed", 0), lab.list_ends("moved")) == (0, [])


def test_a_suspended_job_ends_its_pods_and_goes_on_later(lab):
    lab.run("paused")
    assert lab.suspend("paused", is_suspended=True)["metadata"]["generation"] == 2
    lab.until(lambda: not lab.list_pods("paused"))
    lab.until(lambda: lab.list_ends("paused") == ["Suspended/JobSuspended"])
    status = lab.get_status("paused")
    assert (status.get("active", 0), status.get("failed", 0)) == (0, 0)
    assert lab.find_event("Suspended", "paused") == "Job suspended"
    lab.suspend("paused", is_suspended=False)
    pods = lab.until(lambda: lab.get_running("paused", 2))
    assert {pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] for pod in pods} == {"0"}
    assert lab.list_ends("paused") == []


def test_a_job_that_is_made_suspended_has_no_pods(lab):
    job = lab.make("queued")
    job["spec"]["suspend"] = True
    assert lab.submitter.apply(job).code == 201
    lab.until(lambda: lab.list_ends("queued") == ["Suspended/JobSuspended"])
    assert lab.list_pods("queued") == []
    assert "startTime" not in lab.get_status("queued")


def test_a_deadline_ends_the_job(lab):
    lab.submit("late", max_seconds=4)
    assert lab.await_end("late") == ["FailureTarget/DeadlineExceeded", "Failed/DeadlineExceeded"]
    (message,) = {each["message"] for each in lab.get_status("late")["conditions"]}
    assert message == lab.find_event("DeadlineExceeded", "late") == "Job was active longer than specified deadline"


def test_a_job_ends_only_when_its_last_pod_has(lab):
    pods = lab.run("lingering")
    lab.kubelet.kill(pods[1]["spec"]["nodeName"])
    lab.kubelet.end(pods[0], 0)
    lab.until(lambda: lab.list_ends("lingering") == ["SuccessCriteriaMet/SuccessPolicy"])
    lab.admin.do("DELETE", locate("pods", lab.namespace, pods[1]["metadata"]["name"]), {"gracePeriodSeconds": 0})
    assert lab.await_end("lingering") == ["SuccessCriteriaMet/SuccessPolicy", "Complete/SuccessPolicy"]


@pytest.mark.parametrize("policy", [FOREGROUND, BACKGROUND])
def test_deleting_a_job_deletes_its_pods(lab, policy):
    lab.run("gone")
    assert lab.submitter.call("DELETE", locate("jobs", lab.namespace, "gone"), policy).code == 200
    lab.until(lambda: not lab.list_pods("gone"))
    lab.until(lambda: lab.admin.get("jobs", lab.namespace, "gone") is None)


def test_a_job_deleted_without_a_policy_leaves_its_pods(lab):
    lab.run("orphaned")
    lab.submitter.do("DELETE", locate("jobs", lab.namespace, "orphaned"))
    lab.until(lambda: lab.admin.get("jobs", lab.namespace, "orphaned") is None)
    lab.until(lambda: not any(pod["metadata"].get("ownerReferences") for pod in lab.list_pods("orphaned")))
    assert [pod["status"]["phase"] for pod in lab.list_pods("orphaned")] == ["Running", "Running"]


def test_events_name_the_pods_that_a_job_makes_and_why_it_cannot(lab):
    pods = lab.run("eventful")
    made = {each["message"] for each in lab.admin.list("events", lab.namespace) if each["reason"] == "SuccessfulCreate"}
    assert made == {f"Created pod: {pod['metadata']['name']}" for pod in pods}
    placed = lab.find_event("Scheduled", pods[0]["metadata"]["name"])
    assert (
        placed
        == f"Successfully assigned {lab.namespace}/{pods[0]['metadata']['name']} to {pods[0]['spec']['nodeName']}"
    )
    job = lab.make("nobody")
    job["spec"]["template"]["spec"]["serviceAccountName"] = "absent"
    assert lab.submitter.apply(job).code == 201
    words = lab.until(lambda: lab.find_event("FailedCreate", "nobody"))
    end = f'is forbidden: error looking up service account {lab.namespace}/absent: serviceaccount "absent" not found'
    assert re.fullmatch(r'Error creating: pods "nobody-0-(.....)?" ' + re.escape(end), words)


def test_the_log_of_a_pod_comes_from_its_node(lab):
    pod = lab.run("talking")[0]
    lab.kubelet.logs[pod["metadata"]["name"]] = "epoch 1\nepoch 2\n"
    path = locate("pods", lab.namespace, pod["metadata"]["name"], "log")
    assert [*lab.submitter.stream(f"{path}?follow=true")] == ["epoch 1", "epoch 2"]
    answer = lab.submitter.call("GET", f"{path}?container=other")
    assert (answer.code, answer.message) == (400, f"container other is not valid for pod {pod['metadata']['name']}")
