"""Jobs of EKS: the objects of any definition fit Kubernetes' own schemas, and pods read the same job from them."""

import functools
import json
import re
from dataclasses import asdict, replace

import hypothesis.strategies as st
import kubernetes_validate
import pytest
from hypothesis import given, settings

from deeplearning_contract.document import ContractError
from deeplearning_contract.jobs import kubernetes_job
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.kubernetes_cluster import EFA, GPU, make_cluster_objects
from deeplearning_contract.jobs.kubernetes_job import (
    DEFINITION_VARIABLE,
    JOB_LABEL,
    MEMBERS_VARIABLE,
    QUEUE_LABEL,
    name_job,
    read_job,
)
from deeplearning_contract.jobs.submission import KubernetesSettings, SubmissionSettings
from deeplearning_contract.membership import Member
from deeplearning_contract.setting_parts import DataSettings, ScriptSettings
from tests.unit.deeplearning_contract.test_training_job import jobs, names, sources

make_job = functools.partial(kubernetes_job.make_job, secret="5e" * 32)
VERSIONS = ("1.33", "1.34", "1.35", "1.36", "1.37")
NAME_OF_KUBERNETES = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
KUBERNETES = KubernetesSettings(
    cluster_name="Train-0123abcd",
    endpoint="https://0123456789ABCDEF0123456789ABCDEF.gr7.eu-west-1.eks.amazonaws.com",
    authority="Y2VydGlmaWNhdGU=",
    namespace="kubeflow-dist-train",
    service_account="deeplearning",
    image="123456789012.dkr.ecr.eu-west-1.amazonaws.com/cdk-assets:0123",
    members=2,
    gpu_count=8,
    efa_count=4,
    node_label="deeplearning/member=true",
    mount_point="/efs",
    volume_handle="fs-0123456789abcdef0::fsap-0123456789abcdef0",
    shared_capacity="85Gi",
    claim_capacity="85Gi",
    agent=ScriptSettings("assets", "agent.zip", "ab" * 32),
    region="eu-west-1",
    has_nvidia_plugin=True,
)
SUBMISSION = SubmissionSettings("eks", "Train", "root", "assets", "deeplearning-jobs/Train/", kubernetes=KUBERNETES)
JOB = JobDefinition("train_digits", ("python3", "train_digits.py"))

clusters = st.builds(
    replace,
    st.just(KUBERNETES),
    members=st.integers(1, 450),
    gpu_count=st.sampled_from([0, 1, 4, 8, 16]),
    efa_count=st.sampled_from([0, 1, 4, 32]),
    has_nvidia_plugin=st.booleans(),
    queue=st.just("") | st.just("team"),
    memory_mib=st.sampled_from([0, 2201, 667_187]),
    disk_gibibytes=st.sampled_from([0, 20, 1320]),
    data=st.lists(sources, max_size=3, unique_by=lambda source: source.name).map(tuple),
)


@st.composite
def submissions(draw):
    """A cluster, and a job that fits its nodes."""
    cluster = draw(clusters)
    slots = draw(st.none() | st.integers(1, max(1, cluster.gpu_count)))
    members = draw(st.none() | st.integers(1, cluster.members))
    return replace(SUBMISSION, kubernetes=cluster), replace(draw(jobs), gpus_per_member=slots, members=members)


def judge(document, versions=VERSIONS):
    """Hold an object against the strict schemas of every version that the stack offers, and of the next one."""
    for version in versions:
        kubernetes_validate.validate(document, version, strict=True)


def get_container(job):
    return job["spec"]["template"]["spec"]["containers"][0]


def expand(text):
    """Return a variable's value as a container gets it (Kubernetes API reference, EnvVar, `value`)."""
    return re.sub(r"\$\$|\$\(DEEPLEARNING_POD\)", lambda found: "$" if found[0] == "$$" else "a pod", text)


@settings(max_examples=10)
@given(submissions(), st.sampled_from(VERSIONS))
def test_the_job_of_any_definition_passes_the_strict_schemas(found, version):
    judge(make_job(*found), (version,))


def test_a_job_with_every_field_passes_the_strict_schemas_of_each_version():
    queued = replace(SUBMISSION, kubernetes=replace(KUBERNETES, queue="team"))
    judge(make_job(queued, replace(JOB, max_seconds=600, retries=2)))


@pytest.mark.parametrize("has_nvidia_plugin", [True, False])
@pytest.mark.parametrize("gpu_count", [0, 8])
@pytest.mark.parametrize("efa_count", [0, 4])
def test_the_objects_of_a_cluster_pass_the_strict_schemas(efa_count, gpu_count, *, has_nvidia_plugin):
    cluster = replace(KUBERNETES, efa_count=efa_count, gpu_count=gpu_count, has_nvidia_plugin=has_nvidia_plugin)
    found = make_cluster_objects(cluster, {"start_pod.py": "print()"})
    for each in found:
        judge(each, ("1.33", "1.37"))
    plugins = [each["metadata"]["name"] for each in found if each["kind"] == "DaemonSet"]
    wanted = [("aws-efa-k8s-device-plugin", efa_count), ("nvidia-device-plugin", gpu_count and not has_nvidia_plugin)]
    assert plugins == [name for name, is_wanted in wanted if is_wanted]


@given(submissions())
def test_pods_keep_within_the_limits_of_their_namespace(found):
    submission, definition = found
    assert submission.kubernetes
    namespace, *_ = make_cluster_objects(submission.kubernetes, {"start_pod.py": "print()"})
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"
    # Kubernetes documentation, "Pod Security Standards", "Baseline": what it disallows, of which a pod sets nothing.
    pod = make_job(submission, definition)["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "securityContext"} & pod.keys()
    assert not any({"securityContext", "ports", "lifecycle"} & container.keys() for container in pod["containers"])
    kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
    assert kinds == {"persistentVolumeClaim", "emptyDir", "configMap"}


def test_the_plugins_have_the_security_contexts_of_their_sources():
    """
    The chart of the EFA plugin runs it privileged, which the namespace of jobs would refuse.

    Sources: aws/eks-charts#1245, and values.yaml of its chart v0.5.30; NVIDIA/k8s-device-plugin, static deployment.
    """
    cluster = replace(KUBERNETES, has_nvidia_plugin=False)
    efa, nvidia = (each for each in make_cluster_objects(cluster, {}) if each["kind"] == "DaemonSet")
    assert efa["metadata"]["namespace"] == nvidia["metadata"]["namespace"] == "kube-system"
    contexts = [each["spec"]["template"]["spec"]["containers"][0]["securityContext"] for each in (efa, nvidia)]
    assert contexts == [
        {"privileged": True, "allowPrivilegeEscalation": True, "runAsNonRoot": False, "runAsUser": 0},
        {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    ]


@pytest.mark.parametrize(
    ("region", "registry"),
    [
        ("us-west-2", "602401143452.dkr.ecr.us-west-2.amazonaws.com"),
        ("eu-west-1", "602401143452.dkr.ecr.us-west-2.amazonaws.com"),
        ("us-gov-west-1", "013241004608.dkr.ecr.us-gov-west-1.amazonaws.com"),
        ("us-gov-east-1", "151742754352.dkr.ecr.us-gov-east-1.amazonaws.com"),
        ("cn-north-1", "918309763551.dkr.ecr.cn-north-1.amazonaws.com.cn"),
        ("cn-northwest-1", "961992271922.dkr.ecr.cn-northwest-1.amazonaws.com.cn"),
    ],
)
def test_the_efa_plugin_comes_from_a_registry_of_the_partition(region, registry):
    """EKS user guide, "View Amazon container image registries for Amazon EKS add-ons"; aws/eks-charts, values.yaml."""
    (plugin,) = (
        each for each in make_cluster_objects(replace(KUBERNETES, region=region), {}) if each["kind"] == "DaemonSet"
    )
    (container,) = plugin["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{registry}/eks/aws-efa-k8s-device-plugin:v0.5.20"


def test_the_schemas_refuse_a_field_that_kubernetes_does_not_have():
    job = make_job(SUBMISSION, JOB)
    job["spec"]["completionMod"] = "Indexed"
    with pytest.raises(kubernetes_validate.ValidationError):
        judge(job)


@given(submissions())
def test_ranks_are_members_times_gpus(found):
    submission, definition = found
    cluster = submission.kubernetes
    assert cluster is not None
    job = make_job(submission, definition)
    limits = get_container(job).get("resources", {}).get("limits", {})
    members = [
        Member(f"{job['metadata']['name']}-{index}-x7k2q", "10.0.0.1", int(limits.get(GPU, 0)), f"ssh-rsa {'A' * 32}")
        for index in range(job["spec"]["completions"])
    ]
    slots = (definition.gpus_per_member or cluster.gpu_count) if cluster.gpu_count else 1
    assert sum(member.slots for member in members) == (definition.members or cluster.members) * slots
    assert job["spec"]["parallelism"] == len(members)
    variables = {each["name"]: each.get("value") for each in get_container(job)["env"]}
    assert variables[MEMBERS_VARIABLE] == str(len(members))
    assert limits.get(EFA, "0") == str(cluster.efa_count)


@given(submissions())
def test_pods_read_the_job_from_their_variable(found):
    submission, definition = found
    job = make_job(submission, definition)
    for each in get_container(job)["env"]:
        each["value"] = expand(each.get("value", ""))
    assert read_job(job) == replace(definition, ends_cluster=False)


@given(submissions(), st.integers(0, 3))
def test_pods_read_the_data_of_the_job_from_their_variable(found, count):
    submission, definition = found
    assert submission.kubernetes
    sources = submission.kubernetes.data
    chosen = sources[:count] or sources
    job = make_job(submission, replace(definition, data=tuple(source.name for source in sources[:count])))
    variables = {each["name"]: expand(each.get("value", "")) for each in get_container(job)["env"]}
    assert ("DEEPLEARNING_SOURCES" in variables) is bool(sources)
    assert json.loads(variables.get("DEEPLEARNING_SOURCES", "[]")) == [asdict(source) for source in chosen]


def test_kubernetes_replaces_nothing_in_a_definition():
    definition = replace(JOB, program=("sh", "-c", "echo $$ $(DEEPLEARNING_POD) $HOME"))
    job = make_job(SUBMISSION, definition)
    (text,) = (each["value"] for each in get_container(job)["env"] if each["name"] == DEFINITION_VARIABLE)
    assert expand(text) == text
    assert JobDefinition.from_json(text) == definition


@given(names)
def test_the_names_of_jobs_pods_and_hosts_are_names_of_kubernetes(name):
    found = name_job(name)
    assert NAME_OF_KUBERNETES.fullmatch(found)
    assert len(f"{found}-999-x7k2q") <= 63  # The label of a pod with its name, and DNS (RFC 1123).
    Member(f"{found}-999-x7k2q", "10.0.0.1", 0, f"ssh-rsa {'A' * 32}")


@given(names, names)
def test_names_that_lose_more_than_underscores_stay_apart(first, second):
    is_same = first.replace("_", "-") == second.replace("_", "-")
    assert is_same or name_job(first) != name_job(second)


@pytest.mark.parametrize(
    ("job", "name"),
    [
        ("train_digits", "train-digits"),
        ("train-digits", "train-digits"),
        ("x" * 52, "x" * 52),
        ("x" * 53, f"{'x' * 43}-8a04a39a"),
        ("Mask.R-CNN", "mask-r-cnn-713639c8"),
        ("a_", "a-571fb0e3"),
    ],
)
def test_a_name_has_a_digest_where_letters_are_lost(job, name):
    assert name_job(job) == name
    assert make_job(SUBMISSION, replace(JOB, name=job))["metadata"]["annotations"][JOB_LABEL] == job


@pytest.mark.parametrize("text", ["train-digits", "train-digits-0", "Train-0-x7k2q", "-0-x7k2q", "train-1000-x7k2q"])
def test_a_name_that_no_pod_of_a_job_has_is_no_member(text):
    with pytest.raises(ContractError, match="must be like i-0123456789abcdef0, algo-1 or train-0-abcde"):
        Member(text, "10.0.0.1", 0, f"ssh-rsa {'A' * 32}")


@pytest.mark.parametrize(
    ("gpus", "memory", "disk", "shared"),
    [
        (None, "667187Mi", "1320Gi", "333593Mi"),
        (8, "667187Mi", "1320Gi", "333593Mi"),
        (2, "166796Mi", "330Gi", "83398Mi"),
    ],
)
def test_a_pod_has_limits_of_memory_and_disk_by_its_share_of_the_gpus(gpus, memory, disk, shared):
    """
    A pod beyond a limit of its own costs a retry, and one that the kubelet evicts for its node does not.

    Source: kubernetes/kubernetes, eviction_manager.go: only pressure of the node sets DisruptionTarget.
    """
    sized = replace(SUBMISSION, kubernetes=replace(KUBERNETES, memory_mib=667_187, disk_gibibytes=1320))
    job = make_job(sized, replace(JOB, gpus_per_member=gpus))
    limits = get_container(job)["resources"]["limits"]
    assert (limits["memory"], limits["ephemeral-storage"]) == (memory, disk)
    (folder,) = (each["emptyDir"] for each in job["spec"]["template"]["spec"]["volumes"] if each["name"] == "memory")
    assert folder == {"medium": "Memory", "sizeLimit": shared}
    assert not job["spec"]["template"]["spec"]["containers"][0]["resources"].keys() - {"limits"}


def test_a_pod_without_gpus_has_the_room_of_its_node():
    sized = replace(KUBERNETES, gpu_count=0, efa_count=0, memory_mib=12_646, disk_gibibytes=140)
    limits = get_container(make_job(replace(SUBMISSION, kubernetes=sized), JOB))["resources"]["limits"]
    assert limits == {"memory": "12646Mi", "ephemeral-storage": "140Gi"}


def test_a_pod_of_a_type_whose_size_is_not_known_has_no_limit_of_memory():
    job = make_job(SUBMISSION, JOB)
    assert get_container(job)["resources"]["limits"].keys() == {GPU, EFA}
    assert {"name": "memory", "emptyDir": {"medium": "Memory"}} in job["spec"]["template"]["spec"]["volumes"]


def test_a_job_of_a_queue_waits_for_it():
    assert "suspend" not in make_job(SUBMISSION, JOB)["spec"]
    queued = make_job(replace(SUBMISSION, kubernetes=replace(KUBERNETES, queue="team")), JOB)
    assert queued["spec"]["suspend"] is True
    assert queued["metadata"]["labels"][QUEUE_LABEL] == "team"


def test_retries_and_limits_of_time_are_those_of_the_definition():
    spec = make_job(SUBMISSION, replace(JOB, retries=3, max_seconds=600))["spec"]
    assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"], spec["activeDeadlineSeconds"]) == (3, 0, 600)
    assert "activeDeadlineSeconds" not in make_job(SUBMISSION, JOB)["spec"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gpus_per_member": 9}, "gpus_per_member must be at most 8 on this cluster's nodes, got 9"),
        (
            {"members": 3},
            "members must be at most 2, the nodes of this cluster, got 3; leave it out for all, or raise ",
        ),
        ({"container": "image"}, "container must be left out on EKS"),
        ({"data": ("coco",)}, "data must be names of the stack's data, got 'coco'; the stack has none"),
        ({"program": ("python3", "x" * 140_000)}, "job must have at most 131047 characters on EKS"),
    ],
)
def test_a_job_that_no_pod_could_run_is_refused(changes, said):
    with pytest.raises(ContractError, match=said):
        make_job(SUBMISSION, replace(JOB, **changes))


def test_a_job_of_another_program_has_no_definition():
    with pytest.raises(ContractError, match="Job must have the variable DEEPLEARNING_DEFINITION"):
        read_job({"spec": {"template": {"spec": {"containers": [{"name": "other", "image": "image"}]}}}})


def test_a_document_without_kubernetes_is_refused():
    with pytest.raises(ContractError, match="must have the settings of Kubernetes"):
        make_job(replace(SUBMISSION, kubernetes=None), JOB)


def test_the_submission_document_keeps_the_settings_and_fits_its_parameter():
    data = (DataSettings("coco", "bucket", "coco/", "efs"),)
    submission = replace(SUBMISSION, kubernetes=replace(KUBERNETES, queue="team", data=data, authority="A" * 1500))
    text = json.dumps(submission.to_document())
    assert SubmissionSettings.from_json(text) == submission
    assert len(text) <= 4096  # Of a standard parameter (Systems Manager User Guide, "Managing parameter tiers").
