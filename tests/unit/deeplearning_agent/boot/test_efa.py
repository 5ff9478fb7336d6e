"""EFA's software comes to nodes that lack it, pinned by its digest, and a node says by which provider it speaks."""

import contextlib
import hashlib
import io
import logging
import tarfile

import pytest

from deeplearning_agent.boot import efa_software
from deeplearning_agent.boot.efa_software import prepare_efa
from deeplearning_agent.telemetry.log_records import read_fields
from deeplearning_contract.log_record import PROVIDER
from deeplearning_contract.setting_parts import HardwareSettings, JobNeeds
from deeplearning_node.health import network as network_health
from deeplearning_node.health.network import FAULT_FILE, FI_INFO, REMEDY, Provider, check_network, find_provider
from deeplearning_node.health.node_check import check_node
from deeplearning_node.node_facts import NodeFacts
from tests.unit.loopback import LoopbackServer, respond

P3DN = HardwareSettings("p3dn.24xlarge", 8, 1, 1)
P4D = HardwareSettings("p4d.24xlarge", 8, 4, 4)
G5 = HardwareSettings("g5.xlarge", 1, 1, 0)
TRN1 = HardwareSettings("trn1.32xlarge", 0, 8, 8)
ONE = "provider: efa\n    fabric: efa\n    domain: efa_0-rdm\n    type: FI_EP_RDM\n"
FOUR = "\n".join(f"provider: efa\n    domain: rdmap{card}s27-rdm\n    type: FI_EP_RDM" for card in range(4))
INSTALLER = """#!/bin/sh
echo "$PWD|$@|$APT_CONFIG|$DEBIAN_FRONTEND" >>"$CALLS"
cat "$APT_CONFIG" >>"$CALLS"
mkdir -p "$TREE/opt/amazon/efa/bin" "$TREE/opt/amazon/ofi-nccl/lib"
printf '#!/bin/sh\\ncat <<EOF\\n%s\\nEOF\\n' 'domain: efa_0-rdm' >"$TREE/opt/amazon/efa/bin/fi_info"
chmod +x "$TREE/opt/amazon/efa/bin/fi_info"
: >"$TREE/opt/amazon/ofi-nccl/lib/libnccl-net.so"
"""


def pack(script):
    """Return the installer's tarball around a script."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        entry = tarfile.TarInfo("aws-efa-installer/efa_installer.sh")
        entry.size, entry.mode = len(script.encode()), 0o755
        archive.addfile(entry, io.BytesIO(script.encode()))
    return stream.getvalue()


class Depot(LoopbackServer):
    """Serves the tarball as AWS does, and counts who fetches it."""

    def __init__(self, monkeypatch, node, script=INSTALLER):
        super().__init__()
        self.requests = 0
        self.failures = 0
        self.calls = node.root / "installer.calls"
        self.data = pack(script.replace("$CALLS", str(self.calls)).replace("$TREE", str(node.root)))

        monkeypatch.setattr(efa_software, "URL", f"{self.url}/installer.tar.gz")
        monkeypatch.setattr(efa_software, "SHA256", hashlib.sha256(self.data).hexdigest())

    def answer(self, request, _body):
        self.requests += 1
        self.failures -= 1
        respond(request, *((503,) if self.failures >= 0 else (200, self.data)))


@pytest.fixture
def make_node(lab, ticking_clock):
    def make(hardware=P3DN):
        node = lab.node(0, ticking_clock(), needs=JobNeeds({"master": hardware} if hardware else {}))
        for name in ("tar", "gzip", "chmod", "printf"):
            lab.program(0, name, f'exec /bin/{name} "$@"')
        lab.program(0, "modprobe", 'echo "$@" >>"$FAKES/modprobe.calls"')
        lab.program(0, "ldconfig", "echo libc.so.6")
        return node

    return make


@pytest.fixture
def make_depot(monkeypatch):
    with contextlib.ExitStack() as made:
        yield lambda node, **options: made.enter_context(contextlib.closing(Depot(monkeypatch, node, **options)))


def give_software(node, answer=ONE, plugin="opt/amazon/ofi-nccl/lib/libnccl-net.so"):
    """Let the image have fi_info with an answer, and the plugin."""
    path = node.path(FI_INFO)
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\ncat <<'ANSWER'\n{answer}\nANSWER\n")
    path.chmod(0o755)
    if plugin:
        (node.root / plugin).parent.mkdir(parents=True)
        (node.root / plugin).touch()


# --- The software ---------------------------------------------------------------------------------------


def test_the_pin_is_a_version_and_the_digest_that_aws_publishes_for_it():
    assert f"https://efa-installer.amazonaws.com/aws-efa-installer-{efa_software.VERSION}.tar.gz" == efa_software.URL
    # EC2 user guide, efa-verify: the row of EFA 1.47.0, as stored copies of the page have it.
    published = "2df4201e046833c7dc8160907bee7f52b76ff80ed147376a2d0ed8a0dd66b2db"
    assert efa_software.VERSION == "1.47.0"
    assert published == efa_software.SHA256


@pytest.mark.parametrize(
    ("hardware", "why"), [(G5, "g5.xlarge has no EFA here"), (None, "the instance type has no EFA here")]
)
def test_a_type_without_efa_gets_nothing_and_tcp_is_no_fault(make_node, make_depot, hardware, why):
    node = make_node(hardware)
    depot = make_depot(node)
    prepare_efa(node, node.limit(1000))
    assert depot.requests == 0
    assert not node.path(FAULT_FILE).exists()
    assert find_provider(node.programs, node.root, hardware) == Provider("tcp", why)
    assert check_network(node.programs, node.root, hardware).ok


def test_an_image_that_brings_the_software_is_left_as_it_is(make_node, make_depot, caplog):
    node = make_node()
    give_software(node)
    depot = make_depot(node)
    with caplog.at_level(logging.INFO):
        prepare_efa(node, node.limit(1000))
    assert depot.requests == 0
    assert "NCCL uses efa: libfabric lists 1 of 1 devices" in caplog.text
    assert not (node.root / "etc/security/limits.d").exists()


def test_an_image_without_it_gets_the_pinned_installer(lab, make_node, make_depot):
    node = make_node()
    lab.program(0, "apt-get", 'echo "$@" >>"$FAKES/apt.calls"')
    depot = make_depot(node)
    prepare_efa(node, node.limit(1000))
    folder = node.path("/var/lib/deeplearning/efa-installer")
    call, setting = depot.calls.read_text().splitlines()
    assert call == f"{folder}/aws-efa-installer|-y --mpi=openmpi4|{folder}/apt.conf|noninteractive"
    assert setting == 'DPkg::Lock::Timeout "300";'
    assert (lab.directory / "programs0/apt.calls").read_text() == "update\n"
    assert (lab.directory / "programs0/modprobe.calls").read_text() == "efa\n"
    assert not folder.exists()
    assert not node.path(FAULT_FILE).exists()
    assert find_provider(node.programs, node.root, P3DN).name == "efa"


def test_a_head_node_gets_the_workers_software_and_has_no_fault_without_efa(lab, make_node, make_depot, ticking_clock):
    make_node()
    head = HardwareSettings("m5.large", 0, 1, 0)
    node = lab.node(0, ticking_clock(), needs=JobNeeds({"master": head, "worker": P3DN}))
    depot = make_depot(node)
    prepare_efa(node, node.limit(1000))
    assert depot.requests == 1
    assert find_provider(node.programs, node.root, head) == Provider("tcp", "m5.large has no EFA here")


@pytest.mark.parametrize(
    ("more", "file", "text"),
    [
        ("", "02-deeplearning-efa.conf", "* soft memlock unlimited\n* hard memlock unlimited\n"),
        ('echo "* hard memlock unlimited" >$LIMITS/01_efa.conf\n', "01_efa.conf", "* hard memlock unlimited\n"),
    ],
    ids=["written", "the installer's own is enough"],
)
def test_locked_memory_is_allowed_where_the_installer_did_not(make_node, make_depot, more, file, text):
    node = make_node()
    limits = node.path("/etc/security/limits.d")
    make_depot(node, script=f"{INSTALLER}mkdir -p {limits}\n{more.replace('$LIMITS', str(limits))}")
    prepare_efa(node, node.limit(1000))
    assert {path.name: path.read_text() for path in limits.iterdir()} == {file: text}


def test_an_installer_with_another_digest_never_runs_and_the_node_says_that_it_speaks_tcp(
    make_node, make_depot, monkeypatch, caplog
):
    node = make_node()
    depot = make_depot(node)
    monkeypatch.setattr(efa_software, "SHA256", "0" * 64)
    prepare_efa(node, node.limit(1000))
    assert not depot.calls.exists()
    found = hashlib.sha256(depot.data).hexdigest()
    why = f"its sha256 must be {'0' * 64}, got {found}; it was not run"
    assert why in node.path(FAULT_FILE).read_text()
    provider = find_provider(node.programs, node.root, P3DN)
    assert (provider.name, provider.is_fault) == ("tcp", True)
    assert why in provider.why
    (warning,) = [record for record in caplog.records if "NCCL will not use" in record.getMessage()]
    fields = read_fields(warning)
    assert warning.levelname == "WARNING"
    assert fields.is_urgent
    assert fields.details == {PROVIDER: provider.detail}
    assert warning.getMessage().endswith(f"; {REMEDY}")


def test_a_download_that_fails_is_begun_again_and_given_up_long_before_the_set_up_ends(make_node, make_depot):
    node = make_node()
    depot = make_depot(node)
    depot.failures = 1000
    began, deadline = node.clock.now, node.limit(3000)
    prepare_efa(node, deadline)
    assert node.clock.now - began < 400
    assert ": HTTP Error 503" in node.path(FAULT_FILE).read_text()
    depot.requests, depot.failures = 0, 2
    prepare_efa(node, node.limit(1000))
    assert depot.requests == 3
    assert find_provider(node.programs, node.root, P3DN).name == "efa"


def test_a_failed_installer_is_reported_and_run_again_at_the_next_start(make_node, make_depot):
    node = make_node()
    make_depot(node, script=INSTALLER + "echo 'dkms: no headers'; exit 3\n")
    prepare_efa(node, node.limit(1000))
    assert "efa_installer.sh -y --mpi=openmpi4 ended with status 3" in node.path(FAULT_FILE).read_text()
    assert "dkms: no headers" in node.path(FAULT_FILE).read_text()
    again = make_depot(node)
    prepare_efa(node, node.limit(1000))
    assert again.requests == 1
    assert not node.path(FAULT_FILE).exists()


def test_an_interrupted_installation_is_begun_again(make_node, make_depot, monkeypatch):
    node = make_node()
    depot = make_depot(node)
    give_software(node)

    def die(*_arguments):
        raise KeyboardInterrupt

    node.path(FAULT_FILE).parent.mkdir(parents=True, exist_ok=True)
    node.path(FAULT_FILE).touch()
    with monkeypatch.context() as patch:
        patch.setattr(efa_software, "install", die)
        with pytest.raises(KeyboardInterrupt):
            prepare_efa(node, node.limit(1000))
    assert node.path(FAULT_FILE).read_text() == "its installation was interrupted\n"
    prepare_efa(node, node.limit(1000))
    assert depot.requests == 1
    assert not node.path(FAULT_FILE).exists()


def test_a_disk_without_room_is_named_before_anything_is_downloaded(make_node, make_depot, monkeypatch):
    node = make_node()
    depot = make_depot(node)
    monkeypatch.setattr(efa_software, "LEAST_FREE_BYTES", 2**60)
    prepare_efa(node, node.limit(1000))
    assert depot.requests == 0
    assert "the EFA software needs 1073741824 GiB of disk" in node.path(FAULT_FILE).read_text()


# --- The provider ---------------------------------------------------------------------------------------


def test_all_devices_that_libfabric_lists_are_counted_once(make_node):
    node = make_node(P4D)
    give_software(node, f"{FOUR}\n{FOUR}")
    assert find_provider(node.programs, node.root, P4D) == Provider("efa", "libfabric lists 4 of 4 devices")
    assert check_network(node.programs, node.root, P4D).ok


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (None, "libfabric with EFA is not installed, there is no fi_info"),
        ("echo 'fi_getinfo: -61 (No data available)'; exit 61", "libfabric finds no EFA: fi_getinfo: -61 (No data"),
        ("echo nothing", "libfabric lists no EFA"),
        ("sleep 60", "fi_info did not respond in 0.2 s"),
    ],
)
def test_an_efa_that_nobody_lists_is_a_fault_with_its_reason(lab, make_node, monkeypatch, script, why):
    monkeypatch.setattr(network_health, "PROVIDER_SECONDS", 0.2)
    node = make_node()
    if script:
        lab.program(0, "fi_info", script)
    finding = check_network(node.programs, node.root, P3DN)
    assert not finding.ok
    assert finding.detail.startswith(f"tcp: {why}")
    assert finding.remedy == REMEDY


def test_a_busy_node_that_answers_late_keeps_its_place(lab, make_node, monkeypatch):
    monkeypatch.setattr(network_health, "PROVIDER_SECONDS", 0.2)
    node = make_node()
    lab.program(0, "fi_info", "sleep 60")
    (node.root / "sys/class/infiniband/efa_0").mkdir(parents=True)
    provider = find_provider(node.programs, node.root, P3DN)
    assert provider == Provider("efa", "the kernel has 1 devices, fi_info did not respond in 0.2 s")


def test_nccl_without_its_plugin_speaks_tcp_and_says_so(make_node):
    node = make_node()
    give_software(node, plugin="")
    provider = find_provider(node.programs, node.root, P3DN)
    assert provider == Provider("tcp", "NCCL has no plugin for EFA, aws-ofi-nccl is not installed", is_fault=True)
    assert find_provider(node.programs, node.root, TRN1).name == "efa", "without NVIDIA's GPUs there is no NCCL"


@pytest.mark.parametrize(
    "plugin", ["opt/aws-ofi-nccl/lib/libnccl-net.so", "opt/amazon/ofi-nccl/lib/x/libnccl-net.so", ""]
)
def test_the_plugin_is_found_where_images_have_it_and_among_the_systems_libraries(lab, make_node, plugin):
    node = make_node()
    give_software(node, plugin=plugin)
    if not plugin:
        lab.program(0, "ldconfig", "echo '  libnccl-net.so (libc6,x86-64) => /lib/libnccl-net.so'")
    assert find_provider(node.programs, node.root, P3DN).name == "efa"


def test_health_has_the_provider_of_the_nodes_own_role(make_node):
    node = make_node()
    report = check_node(NodeFacts.of(node), node.programs, node.root)
    (finding,) = [finding for finding in report.findings if finding.name == "network"]
    assert not finding.ok
    assert finding.detail == "tcp: libfabric with EFA is not installed, there is no fi_info"
