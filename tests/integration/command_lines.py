"""Command lines of daemons, and ports for them."""

import os
import shutil
import socket


def flags(**values):
    """log_level="info" -> --log-level info"""
    return [word for name, value in values.items() for word in ("--" + name.replace("_", "-"), str(value))]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class EtcdAddresses:
    """Of the members of an etcd. `clients` are plain; coordinators with CAIRN_TLS_DIR use `dialed`, with TLS."""

    def __init__(self, names):
        self.clients = {name: f"127.0.0.1:{free_port()}" for name in names}
        self.peers = {name: f"http://127.0.0.1:{free_port()}" for name in names}
        self.tls_dir = os.environ.get("CAIRN_TLS_DIR")
        self.dialed = {name: f"127.0.0.1:{free_port()}" for name in names} if self.tls_dir else self.clients

    def command(self, name, directory):
        urls, tls = [f"http://{self.clients[name]}"], []
        if self.tls_dir:
            urls.append(f"https://{self.dialed[name]}")
            files = {"cert_file": "tls.crt", "key_file": "tls.key", "trusted_ca_file": "ca.crt"}
            tls = ["--client-cert-auth", *flags(**{k: f"{self.tls_dir}/{v}" for k, v in files.items()})]
        where = flags(
            data_dir=f"{directory}/{name}",
            name=name,
            listen_client_urls=",".join(urls),
            advertise_client_urls=",".join(urls),
            listen_peer_urls=self.peers[name],
            initial_advertise_peer_urls=self.peers[name],
            initial_cluster=",".join(f"{n}={peer}" for n, peer in self.peers.items()),
        )
        return [shutil.which("etcd"), *where, *tls]
