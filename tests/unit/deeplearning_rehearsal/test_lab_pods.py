"""An image that was not pulled is told in the words of the container runtime."""

import pytest

from deeplearning_rehearsal.lab_pods import explain_failed_pull

IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/train:1"


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
