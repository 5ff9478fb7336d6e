"""
Requests of the file beside this one get the answer of Kubernetes, from the stand-in and from real servers.

`KUBERNETES_BINARIES=<folder>` runs the same requests against the servers of a folder.
"""

import copy
import json
from pathlib import Path

import pytest
import yaml

from deeplearning_contract.jobs.kubernetes_cluster import make_cluster_objects
from tests.kubernetes.client import locate
from tests.kubernetes.conftest import NUMBERS
from tests.kubernetes.lab import START_FILES, Lab

KINDS = yaml.safe_load((Path(__file__).parent / "requests.yaml").read_text())
REQUESTS = [(kind, each) for kind, found in KINDS.items() for each in found]
NAMES = [f"{kind} {json.dumps(each['change'])[:60]} {each.get('query', '')}" for kind, each in REQUESTS]
RULES = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def site(plane):
    """A prepared namespace without nodes, in which a suspended Job is."""
    opened = Lab(plane, next(NUMBERS))
    opened.prepare()
    job = opened.make("live", members=2)
    job["spec"]["suspend"] = True
    assert opened.submitter.apply(job).code == 201
    opened.until(lambda: opened.list_ends("live") == ["Suspended/JobSuspended"])
    yield opened
    opened.close()


def make_objects(lab):
    """Return an object of each kind, as the product has it where it has one."""
    made = {each["kind"].lower(): each for each in make_cluster_objects(lab.settings, START_FILES)}
    container = {"name": "a", "image": "a", "command": ["a"]}
    made |= {"job": lab.make("new", members=2)}
    made["pod"] = {
        "metadata": {"name": "new"},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": lab.settings.service_account,
            "containers": [container],
        },
    }
    made["event"] = {
        "metadata": {"name": "new"},
        "involvedObject": {"kind": "Job", "namespace": lab.namespace, "name": "live"},
        "message": "a",
    }
    labels = {"matchLabels": {"app": "plugin"}}
    template = {"metadata": {"labels": {"app": "plugin"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    made["daemonset"] = {"metadata": {"name": "new"}, "spec": {"selector": labels, "template": template}}
    reference = {"apiGroup": RULES, "kind": "ClusterRole", "name": "edit"}
    made["rolebinding"] = {"metadata": {"name": "submitters"}, "roleRef": reference}
    for kind in ("persistentvolume", "persistentvolumeclaim", "configmap", "namespace"):
        made[kind]["metadata"]["name"] = "new"
    return made


def change(document, path, value):
    """Set, append (`+`) or remove (None) one part of a document."""
    *steps, last = path.split("/")
    for step in steps:
        document = document[int(step)] if isinstance(document, list) else document.setdefault(step, {})
    if isinstance(document, list):
        document[slice(len(document), None) if last == "+" else slice(int(last), int(last) + 1)] = [value]
    elif value is None:
        document.pop(last, None)
    else:
        document[last] = value


def send(lab, kind, request):
    """Send a request that changes nothing for good; return the answer."""
    what, _, is_update = kind.partition(" ")
    plural = f"{what}s"
    namespace = "" if what in ("persistentvolume", "namespace") else lab.namespace
    query = request.get("query", "dryRun=All")
    if is_update:
        names = {"job": "live", "rolebinding": "submitters", "persistentvolumeclaim": "nfs-external"}
        path = locate(plural, namespace, names[what])
        document = copy.deepcopy(lab.admin.do("GET", path))
    else:
        path, document = locate(plural, namespace), copy.deepcopy(make_objects(lab)[what])
    for place, value in request["change"].items():
        change(document, place, value)
    return lab.admin.call("PUT" if is_update else "POST", f"{path}?{query}", document)


@pytest.mark.parametrize(("kind", "request_"), REQUESTS, ids=NAMES)
def test_a_request_has_the_answer_of_kubernetes(site, kind, request_):
    version = tuple(map(int, site.plane.version.split(".")))
    since, until = (request_.get(name, site.plane.version) for name in ("since", "until"))
    if not tuple(map(int, since.split("."))) <= version <= tuple(map(int, until.split("."))):
        pytest.skip(f"Kubernetes {site.plane.version} answers otherwise")
    answer = send(site, kind, request_)
    is_named = site.plane.is_stand_in and "stand_in" in request_
    assert answer.code == request_["stand_in" if is_named else "code"], answer
    if is_named or answer.code == 403:
        assert request_["says"] in answer.message
    if is_named:
        assert "KUBERNETES_BINARIES" in answer.message
    causes = [f"{each['reason'][10:]} {each['field']}" for each in answer.document.get("details", {}).get("causes", ())]
    assert sorted(causes) == sorted(request_.get("causes", ())) or answer.code == 400, answer.message
    if "warns" in request_:
        assert any(request_["warns"] in warning.replace("\\", "") for warning in answer.warnings), answer.warnings


@pytest.mark.parametrize("query", ["resourceVersion=foo", "watch=true&resourceVersion=foo", "timeoutSeconds=foo"])
def test_a_parameter_that_is_no_number_is_refused(site, query):
    answer = site.admin.call("GET", f"{locate('pods', site.namespace)}?{query}")
    assert answer.code in (400, 422), answer


def test_an_event_without_a_message_is_kept_and_harms_nobody(site):
    event = {"metadata": {"name": "silent"}, "involvedObject": {"kind": "Job", "namespace": site.namespace}}
    site.submitter.do("POST", locate("events", site.namespace), event)
    job = site.make("after", members=1)
    job["spec"]["suspend"] = True
    assert site.submitter.apply(job).code == 201
    site.until(lambda: site.list_ends("after") == ["Suspended/JobSuspended"])
    site.submitter.do("DELETE", locate("events", site.namespace, "silent"))


def test_a_configuration_above_one_mebibyte_is_refused(site):
    document = {"metadata": {"name": "large"}, "data": {"a": "x" * 1_048_577}}
    answer = site.admin.call("POST", locate("configmaps", site.namespace), document)
    assert (answer.code, answer.document["details"]["causes"][0]["reason"]) == (422, "FieldValueTooLong")
