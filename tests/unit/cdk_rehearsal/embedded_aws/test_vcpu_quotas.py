"""Each instance counts against one quota of vCPUs, by the names that the preflight looks for."""

import pytest

from cdk_rehearsal.embedded_aws.base.vcpu_quotas import VCPU_QUOTAS, VcpuQuotas, count_vcpus, find_quota
from deeplearning_cli.account.quotas import list_names
from deeplearning_contract.launch_failures import QUOTAS

TYPES = (
    *("p4de.24xlarge", "p4d.24xlarge", "p5.48xlarge", "g5.xlarge", "vt1.3xlarge", "inf2.xlarge", "trn1.32xlarge"),
    *("dl2q.24xlarge", "f2.6xlarge", "x2iedn.xlarge", "c5.large", "im4gn.large", "t3.micro", "m5.large"),
)


def test_the_quotas_have_codes_and_names_of_their_own_and_the_names_of_the_contract():
    assert len({each.code for each in VCPU_QUOTAS}) == len({each.name for each in VCPU_QUOTAS}) == len(VCPU_QUOTAS)
    assert {each.name for each in VCPU_QUOTAS if not each.is_spot} == {name for _, name in QUOTAS}


@pytest.mark.parametrize("market", ["on-demand", "spot"])
@pytest.mark.parametrize("kind", TYPES)
def test_an_instance_counts_against_the_quota_that_the_preflight_looks_for(kind, market):
    quota = find_quota(kind, is_spot=market == "spot")
    assert quota.name in list_names(kind, market)
    assert count_vcpus(kind) > 0


def test_a_quota_of_no_known_name_is_refused():
    with pytest.raises(ValueError, match="quotas must be of EC2's vCPUs by their names"):
        VcpuQuotas({"Running On-Demand Q instances": 0})
