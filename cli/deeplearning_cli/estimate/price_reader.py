"""
Prices of AWS's price list, read through `pricing:GetProducts`.

The usage types are those of AWS's price list and bills; regions other than us-east-1 put a prefix before them.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

RIGHT = "pricing:GetProducts"
PRICING_REGION = "us-east-1"
"""One of the regions that have the price list's endpoint."""
INSTANCES = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
USAGE = {
    "alarm": ("AmazonCloudWatch", "CW:AlarmMonitorUsage"),
    "backup-efs": ("AWSBackup", "WarmStorage-ByteHrs-EFS"),
    "dashboard": ("AmazonCloudWatch", "DashboardsUsageHour"),
    "ebs-gp3": ("AmazonEC2", "EBS:VolumeUsage.gp3"),
    "efs-storage": ("AmazonEFS", "TimedStorage-ByteHrs"),
    "efs-throughput": ("AmazonEFS", "ProvisionedTP-MiBpsHrs"),
    "interface-endpoint": ("AmazonVPC", "VpcEndpoint-Hours"),
    "kms-key": ("awskms", "KMS-Keys"),
    "nat-gateway": ("AmazonEC2", "NatGateway-Hours"),
    "public-ipv4": ("AmazonVPC", "PublicIPv4:InUseAddress"),
}
"""Price -> code of the service, and end of the usage type. FSx for Lustre has no such end: the file's prices stay."""


def read_prices(pricing: Any, region: str, names: Collection[str]) -> dict[str, float]:
    """Return name -> USD for instance types and names in `USAGE`; without those that the price list does not have."""
    prices = read_services(pricing, region, names)
    for name in sorted(name for name in names if "." in name):
        prices |= read_instances(pricing, region, [name], instanceType=name)
    return prices


def read_instances(pricing: Any, region: str, types: Collection[str], **wanted: str) -> dict[str, float]:
    """Return type -> USD for instance types among a region's products that have the wanted attributes."""
    prices = {}
    for product in list_products(pricing, "AmazonEC2", {**INSTANCES, "regionCode": region, **wanted}):
        name = product["product"]["attributes"].get("instanceType", "")
        if name in types and (usd := read_usd(product)):
            prices[name] = usd
    return prices


def read_services(pricing: Any, region: str, names: Collection[str]) -> dict[str, float]:
    """Return name -> USD for those of some names that are in `USAGE`."""
    prices = {}
    for name, (service, usage) in USAGE.items():
        if name not in names:
            continue
        place = {} if name == "dashboard" else {"regionCode": region}
        for product in list_products(pricing, service, place):
            kind = product["product"]["attributes"]["usagetype"]
            if re.fullmatch(rf"([A-Z0-9]+-)?{re.escape(usage)}", kind) and (usd := read_usd(product)):
                prices[name] = usd
    return prices


def list_products(pricing: Any, service: str, wanted: Mapping[str, str]) -> Iterator[Any]:
    """Return the products of a service whose attributes have the wanted values."""
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    for page in pricing.get_paginator("get_products").paginate(ServiceCode=service, Filters=filters):
        yield from map(json.loads, page["PriceList"])


def read_usd(product: Mapping[str, Any]) -> float:
    """Return the highest On-Demand price of a product, which is that of its first tier behind a free one."""
    terms = product["terms"].get("OnDemand", {}).values()
    return max(
        (float(each["pricePerUnit"]["USD"]) for term in terms for each in term["priceDimensions"].values()), default=0.0
    )
