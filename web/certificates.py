"""What a gateway shows when it is called by TLS: a certificate of the cluster's door authority, or
files that somebody put there; renewed while it runs."""

from __future__ import annotations

import datetime
import logging
import os
import ssl
import tempfile

from mrstream.cluster.config.config import ClusterConfig, GatewayConfig
from mrstream.cluster.config.doors import general_names, key_of, names_of
from mrstream.cluster.config.state import DoorKeys
from mrstream.cluster.errors import UserError

log = logging.getLogger(__name__)

VALID_FOR = datetime.timedelta(days=30)
RENEWED_AFTER_S = 10 * 86400.0
LOOK_EVERY_S = 60.0


class Certificates:
    """The context of a gateway's listeners; connections begun later see what it has then."""

    def __init__(self, config: ClusterConfig, host: str, door: DoorKeys) -> None:
        assert config.gateway is not None
        self._gateway: GatewayConfig = config.gateway
        self._names = names_of(config, host)
        if config.gateway.s3_virtual_host:
            self._names += (f"*.{config.gateway.s3_virtual_host}",)
        self._door = door
        self._made_at_s = 0.0
        self._seen = (0.0, 0.0)
        # TLS 1.2 too: Java 8 and older libraries come in here, as they never do between hosts.
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self.ends_at_s = 0.0

    def refresh(self, now_s: float) -> None:
        """Show a new certificate if it is time for one, or if its files have changed."""
        if self._gateway.certificate:
            self._read_files()
        elif now_s - self._made_at_s >= RENEWED_AFTER_S:
            certificate, key = leaf(self._door, self._names, now_s)
            self._load(certificate + key)
            self._made_at_s = now_s
            log.info("a certificate for %s, good for 30 days", ", ".join(self._names))

    def _read_files(self) -> None:
        paths = (self._gateway.certificate, self._gateway.key)
        paths = (os.path.expanduser(paths[0]), os.path.expanduser(paths[1]))
        try:
            seen = (os.stat(paths[0]).st_mtime, os.stat(paths[1]).st_mtime)
            if seen == self._seen:
                return
            with open(paths[0], encoding="ascii") as file:
                self._note_end(file.read())
            self.context.load_cert_chain(*paths)
        except (OSError, ValueError) as error:
            if self._seen == (0.0, 0.0):
                raise UserError(f"gateway.tls: {paths[0]}, {paths[1]}: {error}") from None
            # Half of a pair may have been replaced: what was read before is still good.
            log.warning("the new certificate cannot be used, the old one stays: %s", error)
            return
        self._seen = seen

    def _load(self, pem: str) -> None:
        # The ssl module takes a key from a file only; it is there (mode 0600) for an instant.
        descriptor, path = tempfile.mkstemp()
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(pem)
            self.context.load_cert_chain(path)
        finally:
            os.unlink(path)
        self._note_end(pem)

    def _note_end(self, pem: str) -> None:
        from cryptography import x509

        certificate = x509.load_pem_x509_certificate(pem.encode())
        self.ends_at_s = certificate.not_valid_after_utc.timestamp()


def leaf(door: DoorKeys, names: tuple[str, ...], now_s: float) -> tuple[str, str]:
    """Return a certificate of the authority for these names and its key, both in PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    authority = x509.load_pem_x509_certificate(door.authority.encode())
    issuer_key = key_of(door)
    key = ec.generate_private_key(ec.SECP256R1())
    # A day of slack: clients' clocks may be behind.
    begins = datetime.datetime.fromtimestamp(now_s, datetime.UTC) - datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + VALID_FOR)
        .add_extension(x509.SubjectAlternativeName(general_names(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), text.decode()
