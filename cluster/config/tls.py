"""`tls: true`: connections are encrypted, and each side shows a certificate of the cluster's CA.

The authority signs one certificate and then its key is thrown away: whoever holds the cluster's
secret holds that certificate's key too, and nobody can ever sign another. The handshake with the
secret follows inside the encrypted connection as it does without.
"""

from __future__ import annotations

import datetime
import logging
import os
import ssl
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

from mrstream.cluster.config.state import Secret, TlsKeys
from mrstream.cluster.errors import UserError
from mrstream.cluster.wire.identity import Tls

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

log = logging.getLogger(__name__)

_VALID_FOR = datetime.timedelta(days=365 * 20)


def with_tls_keys(secret: Secret) -> Secret:
    """Return the secret with keys for TLS, making them if there are none yet."""
    if secret.tls is not None:
        return secret
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    authority_key = ec.generate_private_key(ec.SECP256R1())
    member_key = ec.generate_private_key(ec.SECP256R1())
    name = f"mrstream {secret.cluster_id}"
    authority = _certificate(name, authority_key, name, authority_key, is_authority=True)
    member = _certificate(f"{name} member", member_key, name, authority_key, is_authority=False)
    pem = serialization.Encoding.PEM
    key = member_key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    keys = TlsKeys(
        authority.public_bytes(pem).decode(), member.public_bytes(pem).decode(), key.decode()
    )
    return replace(secret, tls=keys)


def tls_of(secret: Secret) -> Tls:
    """Return the contexts for both sides of connections in this cluster."""
    if secret.tls is None:
        raise UserError(
            "cluster.yaml says `tls: true`, but this identity has no keys for it: run "
            "`mrstream cluster up` again (or `join`, on a machine that joined before)"
        )
    server = _context(ssl.PROTOCOL_TLS_SERVER, secret.tls)
    server.sslobject_class = _Told
    return Tls(_context(ssl.PROTOCOL_TLS_CLIENT, secret.tls), server)


class _Told(ssl.SSLObject):
    """An event loop ends a connection whose TLS handshake failed without a word; we log it. The
    loop alone knows whose it was."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise  # not failed: it goes on when more has come
        except ssl.SSLError as error:
            log.warning("refused peer at the TLS handshake reason=%s", error)
            raise


def _context(protocol: ssl._SSLMethod, keys: TlsKeys) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the cluster's own CA has signed one certificate only
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=keys.authority)
    # The ssl module takes a key from a file only; it is there (mode 0600) for an instant.
    descriptor, path = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(keys.key + keys.certificate)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
    return context


def _certificate(
    name: str,
    key: EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: EllipticCurvePrivateKey,
    is_authority: bool,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    # A day of slack: hosts' clocks may differ.
    begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + _VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
