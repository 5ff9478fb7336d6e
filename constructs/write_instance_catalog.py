# ruff: noqa: INP001 - constructs/ is a source root, and this script is not part of the library
"""
Write the catalogue of instance types from the copy of EC2's descriptions that moto carries.

    python constructs/write_instance_catalog.py 2026-08-02

The argument is the date of that copy (moto's changelog names it). Run it after moto is raised, read the
difference, and commit the result. The library reads only the file that this writes, never moto.
"""

import gzip
import json
import sys
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent / "deeplearning_cdk" / "nodes" / "instance_catalog.json"
RESOURCES = files("moto.ec2") / "resources"
ACCELERATED = ("GpuInfo", "NeuronInfo", "FpgaInfo", "InferenceAcceleratorInfo", "MediaAcceleratorInfo")


def main(date: str) -> None:
    """Write the catalogue, one type a line, so that a difference reads well."""
    types = json.loads(gzip.decompress((RESOURCES / "instance_types.json.gz").read_bytes()))
    regions = read_regions()
    lines = [
        f"{json.dumps(name)}: {json.dumps(compact(description, regions.get(name, [])))}"
        for name, description in sorted(types.items())
        if not description["ProcessorInfo"]["SupportedArchitectures"][0].endswith("_mac")
    ]
    source = f"DescribeInstanceTypes, as moto {version('moto')} carries it"
    head = f'"date": {json.dumps(date)},\n"source": {json.dumps(source)},\n"types": {{\n'
    TARGET.write_text("{\n" + head + ",\n".join(lines) + "\n}\n}\n")


def read_regions() -> dict[str, list[str]]:
    """Return the regions that offer each type."""
    offered: dict[str, list[str]] = {}
    folder = RESOURCES / "instance_type_offerings" / "region"
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        for offering in json.loads(gzip.decompress(entry.read_bytes())):
            offered.setdefault(offering["InstanceType"], []).append(offering["Location"])
    return offered


def compact(description: dict[str, Any], regions: list[str]) -> dict[str, Any]:
    """Keep what the constructs decide by; what most types share is left out."""
    gpus = description.get("GpuInfo", {}).get("Gpus", [])
    cards = sorted(description["NetworkInfo"].get("NetworkCards", []), key=lambda card: int(card["NetworkCardIndex"]))
    efa = [card["NetworkCardIndex"] for card in cards if "efa" in card.get("InterfaceTypes", ())]
    efa = efa[: description["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)]
    is_accelerated = any(key in description for key in ACCELERATED)
    entry = {
        "architecture": "arm64" if "arm64" in description["ProcessorInfo"]["SupportedArchitectures"] else None,
        "accelerator": read_maker(description) if is_accelerated else None,
        "gpus": sum(gpu.get("Count") or gpu.get("LogicalGpuCount", 0) for gpu in gpus),
        "network_cards": len(cards) if len(cards) > 1 else None,
        "efa_cards": f"{efa[0]}-{efa[-1]}" if efa else None,
        "cluster_placement": None if "cluster" in description["PlacementGroupInfo"]["SupportedStrategies"] else False,
        "burstable": description["BurstablePerformanceSupported"] or None,
        # Only scarce types are worth a warning about the region.
        "regions": sorted(set(regions)) if is_accelerated else None,
    }
    return {key: value for key, value in entry.items() if value or value is False}


def read_maker(description: dict[str, Any]) -> str:
    """Return who makes the accelerators of a type."""
    gpus = description.get("GpuInfo", {}).get("Gpus", [])
    if gpus:
        return str(gpus[0]["Manufacturer"])
    return "AWS" if "NeuronInfo" in description else "other"


if __name__ == "__main__":
    main(sys.argv[1])
