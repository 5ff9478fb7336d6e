# ruff: noqa: INP001 - constructs/ is a source root, and this script is not part of the library
"""
Write the catalogue of instance types from the copy of EC2's descriptions that moto carries.

    python constructs/write_instance_catalog.py 2026-08-02

The argument is the date of that copy, from moto's changelog. Run it after moto is updated, review the difference, and
commit the result. The library reads only the resulting file, never moto.

EC2 describes neither compute capabilities nor drivers, so both are in tables here, by EC2's names of GPUs:

- Compute capabilities: NVIDIA's pages "CUDA GPU Compute Capability" (developer.nvidia.com/cuda-gpus) and "Legacy CUDA
  GPU Compute Capability". The A10G stands there as A10, the T4G as T4. `retired_instance_types.json`, which is written
  by hand, has those of K520 (g2), M60 (g3), K80 (p2) and V100 (p3); the EC2 user guide, "Accelerated computing", names
  the GPUs of each family.
- Driver branches: Volta has no open driver, so no Deep Learning AMI drives it; R580 is the last branch that does.
"""

import gzip
import json
import sys
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent / "deeplearning_cdk" / "catalog" / "instance_catalog.json"
RESOURCES = files("moto.ec2") / "resources"
COMPUTE_CAPABILITIES = {
    "V100": "7.0",
    "T4": "7.5",
    "T4g": "7.5",
    "A100": "8.0",
    "A10G": "8.6",
    "L4": "8.9",
    "L40S": "8.9",
    "H100": "9.0",
    "H200": "9.0",
    "B200": "10.0",
    "B300": "10.3",
    "RTX PRO 4500": "12.0",
    "RTX PRO Server 6000": "12.0",
}
DRIVER_BRANCHES = {"V100": 580}
ACCELERATED = ("GpuInfo", "NeuronInfo", "FpgaInfo", "InferenceAcceleratorInfo", "MediaAcceleratorInfo")


def main(date: str) -> None:
    """Write the catalogue."""
    TARGET.write_text(render(date))


def render(date: str) -> str:
    """Return the catalogue as JSON, one type per line, so that differences are readable."""
    types = json.loads(gzip.decompress((RESOURCES / "instance_types.json.gz").read_bytes()))
    regions = read_regions()
    lines = [
        f"{json.dumps(name)}: {json.dumps(compact(description, regions.get(name, [])))}"
        for name, description in sorted(types.items())
        if not description["ProcessorInfo"]["SupportedArchitectures"][0].endswith("_mac")
    ]
    source = f"DescribeInstanceTypes, as moto {version('moto')} carries it"
    head = f'"date": {json.dumps(date)},\n"source": {json.dumps(source)},\n"types": {{\n'
    return "{\n" + head + ",\n".join(lines) + "\n}\n}\n"


def read_regions() -> dict[str, list[str]]:
    """Return the regions that offer each type."""
    offered: dict[str, list[str]] = {}
    folder = RESOURCES / "instance_type_offerings" / "region"
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        for offering in json.loads(gzip.decompress(entry.read_bytes())):
            offered.setdefault(offering["InstanceType"], []).append(offering["Location"])
    return offered


def compact(description: dict[str, Any], regions: list[str]) -> dict[str, Any]:
    """Return the facts that the constructs use, without values that most types share."""
    gpus = description.get("GpuInfo", {}).get("Gpus", [])
    cards = sorted(description["NetworkInfo"].get("NetworkCards", []), key=lambda card: int(card["NetworkCardIndex"]))
    efa = [card["NetworkCardIndex"] for card in cards if "efa" in card.get("InterfaceTypes", ())]
    efa = efa[: description["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)]
    disks = description.get("InstanceStorageInfo", {})
    is_accelerated = any(key in description for key in ACCELERATED)
    gpu = gpus[0]["Name"] if gpus and gpus[0]["Manufacturer"] == "NVIDIA" else ""
    entry = {
        "architecture": "arm64" if "arm64" in description["ProcessorInfo"]["SupportedArchitectures"] else None,
        "accelerator": read_maker(description) if is_accelerated else None,
        "gpus": sum(each.get("Count") or each.get("LogicalGpuCount", 0) for each in gpus),
        "compute_capability": COMPUTE_CAPABILITIES[gpu] if gpu else None,
        "driver_branch": DRIVER_BRANCHES.get(gpu),
        "network_cards": len(cards) if len(cards) > 1 else None,
        "efa_cards": f"{efa[0]}-{efa[-1]}" if efa else None,
        "cluster_placement": None if "cluster" in description["PlacementGroupInfo"]["SupportedStrategies"] else False,
        "burstable": description["BurstablePerformanceSupported"] or None,
        "local_gigabytes": disks["TotalSizeInGB"] if disks.get("NvmeSupport") == "required" else None,
        "memory_mib": description["MemoryInfo"]["SizeInMiB"],
        # Only scarce types are worth a warning about the region.
        "regions": sorted(set(regions)) if is_accelerated else None,
    }
    return {key: value for key, value in entry.items() if value or value is False}


def read_maker(description: dict[str, Any]) -> str:
    """Return the maker of a type's accelerators."""
    gpus = description.get("GpuInfo", {}).get("Gpus", [])
    if gpus:
        return str(gpus[0]["Manufacturer"])
    return "AWS" if "NeuronInfo" in description else "other"


if __name__ == "__main__":
    main(sys.argv[1])
