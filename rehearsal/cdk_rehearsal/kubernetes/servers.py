"""The servers of a release as processes: etcd, API server, scheduler and controller manager."""

import json
import subprocess
import time
from pathlib import Path

from cdk_rehearsal.errors import RehearsalError, UnavailableError
from cdk_rehearsal.kubernetes.api_client import ApiClient
from cdk_rehearsal.kubernetes.binaries import Binaries
from cdk_rehearsal.kubernetes.certificates import Certificates
from cdk_rehearsal.kubernetes.ports import choose_port
from cdk_rehearsal.kubernetes.users import ADMINISTRATORS, Review
from cdk_rehearsal.kubernetes.webhook import Webhook

_READY_SECONDS = 120
_STOP_SECONDS = 20
_LOOPBACK = "127.0.0.1"
_LAST_LINES = 5


class Servers:
    """
    Processes of a control plane.

    Args:
        folder: Folder of their files and logs.
        binaries: The programs.
        certificates: Certificates of the API server.
        address: Address and port of the API server.
        token: Token of an administrator.
        review: Finds out who sent a token.
        grace_seconds: Time without a sign of life after which a node is not ready.

    Raises:
        UnavailableError: A server ends, or does not become ready.
    """

    def __init__(
        self,
        folder: Path,
        *,
        binaries: Binaries,
        certificates: Certificates,
        address: tuple[str, int],
        token: str,
        review: Review,
        grace_seconds: float,
    ) -> None:
        self._folder, self._binaries, self._certificates = folder, binaries, certificates
        self._address, self._token = address, token
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._webhook = Webhook(review)
        try:
            self._start(grace_seconds)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the processes, the API server's clients first."""
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            _await_end(process)
        self._webhook.stop()

    def _start(self, grace_seconds: float) -> None:
        host, port = self._address
        files, folder = self._certificates, self._folder
        client, peer = (f"http://{_LOOPBACK}:{choose_port(_LOOPBACK)}" for _ in range(2))
        (folder / "tokens.csv").write_text(f'{self._token},administrator,1,"{ADMINISTRATORS}"\n')
        self._write_configuration("webhook.json", {"server": self._webhook.url}, {})
        server = {"server": f"https://{host}:{port}", "certificate-authority": str(files.authority)}
        self._write_configuration("client.json", server, {"token": self._token})
        data = ("--data-dir", str(folder / "etcd"), "--unsafe-no-fsync")
        urls = ("--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer)
        cluster = ("--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}")
        self._spawn("etcd", *data, *urls, *cluster)
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers={client}",
            f"--bind-address={host}",
            f"--secure-port={port}",
            f"--tls-cert-file={files.certificate}",
            f"--tls-private-key-file={files.key}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            f"--authentication-token-webhook-config-file={folder / 'webhook.json'}",
            "--authentication-token-webhook-version=v1",
            "--authentication-token-webhook-cache-ttl=1s",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={files.account_key}",
            f"--service-account-signing-key-file={files.account_key}",
            "--service-cluster-ip-range=100.65.0.0/24",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
        )
        self._await_ready(ApiClient(f"https://{host}:{port}", files.authority, self._token))
        shared = (f"--kubeconfig={folder / 'client.json'}", "--leader-elect=false", "--secure-port=0")
        self._spawn("kube-scheduler", *shared)
        self._spawn(
            "kube-controller-manager",
            *shared,
            "--pvclaimbinder-sync-period=1s",
            f"--service-account-private-key-file={files.account_key}",
            "--controllers=*,-cloud-node-lifecycle-controller,-service-lb-controller,-node-route-controller",
            f"--node-monitor-grace-period={grace_seconds:.0f}s",
        )

    def _write_configuration(self, name: str, cluster: dict[str, str], user: dict[str, str]) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
            "current-context": "context",
        }
        (self._folder / name).write_text(json.dumps(document))

    def _spawn(self, program: str, *words: str) -> None:
        with (self._folder / f"{program}.log").open("ab") as log:
            command = [str(self._binaries.folder / program), *words]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._processes[program] = process

    def _await_ready(self, api: ApiClient) -> None:
        give_up = time.monotonic() + _READY_SECONDS
        while time.monotonic() < give_up:
            self._require_running()
            try:
                api.read_text("/readyz")
            except RehearsalError:
                time.sleep(0.2)
            else:
                return
        raise UnavailableError(f"kube-apiserver must become ready in {_READY_SECONDS} s; read {self._folder}/*.log")

    def _require_running(self) -> None:
        for program, process in self._processes.items():
            if process.poll() is not None:
                log = self._folder / f"{program}.log"
                last = "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
                raise UnavailableError(
                    f"{program} must keep running, got exit status {process.returncode}; {log}:\n{last}"
                )


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
