"""Images of pods and device plugins are pulled by the role of the node, or not at all."""

from types import SimpleNamespace

import pytest

from deeplearning_rehearsal.lab_clusters import PulledPlugins
from deeplearning_rehearsal.lab_pods import explain_failed_pull

IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/train:1"
EFA_PLUGIN = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.20"


@pytest.mark.parametrize(
    ("image", "manifest"),
    [
        (IMAGE, "team/train/manifests/1"),
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com/train", "train/manifests/latest"),
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com/train@sha256:0a", "train/manifests/sha256:0a"),
    ],
)
def test_a_pod_without_the_right_to_its_image_waits_with_the_words_of_the_container_runtime(image, manifest):
    """aws/eks-charts#1044 and aws-samples/bedrock-access-gateway#114."""
    registry = image.partition("/")[0]
    assert explain_failed_pull(image, is_denied=True) == (
        f'rpc error: code = Unknown desc = failed to pull and unpack image "{image}": failed to resolve reference '
        f'"{image}": unexpected status from HEAD request to https://{registry}/v2/{manifest}: 403 Forbidden'
    )


def test_a_pod_of_an_image_that_is_not_there_waits_with_the_words_of_the_container_runtime():
    """aws/amazon-vpc-cni-k8s#3526."""
    assert explain_failed_pull(IMAGE, is_denied=False).endswith(f'"{IMAGE}": {IMAGE}: not found')


def make_daemon(image):
    return {"spec": {"template": {"spec": {"containers": [{"image": image}]}}}}


def test_a_device_plugin_finds_its_resources_on_nodes_that_may_pull_its_image_alone():
    """The chart aws-efa-k8s-device-plugin has its image in us-west-2, whatever the region of the nodes is."""
    daemons, asked = [], []

    def may_pull(image):
        asked.append(image)
        return ".us-west-2." not in image

    api = SimpleNamespace(list=lambda *_: daemons)
    plugins = PulledPlugins(api, {"aws-efa-k8s-device-plugin": {"vpc.amazonaws.com/efa": 4}}, may_pull)
    assert dict(plugins) == {}
    daemons += [make_daemon(EFA_PLUGIN), make_daemon("nvcr.io/nvidia/k8s-device-plugin:v0.17.4")]
    assert (dict(plugins), set(asked)) == ({}, {EFA_PLUGIN})
    near = EFA_PLUGIN.replace("us-west-2", "eu-west-1")
    daemons.append(make_daemon(near))
    assert dict(plugins) == {near: {"vpc.amazonaws.com/efa": 4}}
    assert (dict(plugins), asked.count(near), len(plugins)) == ({near: {"vpc.amazonaws.com/efa": 4}}, 1, 1)
