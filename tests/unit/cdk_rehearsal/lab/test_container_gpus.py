"""Containers of the lab have GPUs where NVIDIA's runtime gives them, which reads the variables of the container."""

import pytest

from cdk_rehearsal.lab import ContainerOrder


@pytest.mark.parametrize(
    ("environment", "has_gpus"),
    [
        ({"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}, True),
        ({"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"}, True),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, True),
        ({"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute"}, False),
        ({"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}, False),
        ({"NVIDIA_VISIBLE_DEVICES": ""}, False),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, False),
        ({"NVIDIA_VISIBLE_DEVICES": "none"}, False),
        ({}, False),
    ],
)
def test_a_container_asks_for_gpus_by_its_variables(environment, has_gpus):
    """NVIDIA Container Toolkit, "Specialized Configurations with Docker": without the variable it has none."""
    order = ContainerOrder(
        container_id="job-algo-1",
        hostname="algo-1",
        address="10.0.0.20",
        prefix_length=20,
        layers=[],
        command=["true"],
        environment=environment,
    )
    assert order.asks_for_gpus is has_gpus
