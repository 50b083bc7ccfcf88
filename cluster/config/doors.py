"""The authority that vouches for a cluster's gateways to browsers and other programs.

Its key stays in the cluster's identity: whoever has that is trusted with everything anyway. It can
vouch only for the names and addresses of this cluster (critical *name constraints*), so installing
it in a browser endangers nothing else. When the names change its certificate is made anew with the
same key and name: what was installed before goes on to vouch for what it named.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mrstream.cluster.config.config import ClusterConfig
from mrstream.cluster.config.state import DoorKeys, Secret

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

VALID_FOR = datetime.timedelta(days=365 * 20)
DOOR_SECRET_BYTES = 32


def names_of(config: ClusterConfig, host: str | None = None) -> tuple[str, ...]:
    """Return the names and addresses by which gateways are called: of one host, or of all."""
    gateway = config.gateway
    further = gateway.names if gateway is not None else ()
    if gateway is not None and gateway.s3_virtual_host:
        further = (*further, gateway.s3_virtual_host)
    addresses = gateway.addresses if gateway is not None else {}
    found: list[str] = []
    for each in config.hosts:
        if host is None or each.name == host:
            found += [each.name, each.address]
            found += [addresses[each.name]] if each.name in addresses else []
    return tuple(dict.fromkeys([*found, *further]))


def with_door_keys(secret: Secret, config: ClusterConfig) -> Secret:
    """Return the secret with an authority for these names, and a secret for access keys, making
    what is not there yet."""
    names = names_of(config)
    door = secret.door
    if door is not None and set(names) <= set(_vouched(door.authority)):
        return secret
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem = serialization.Encoding.PEM
    if door is None:
        key = ec.generate_private_key(ec.SECP256R1())
        door_secret = secrets.token_bytes(DOOR_SECRET_BYTES)
    else:
        key = key_of(door)
        door_secret = door.secret
    authority = _authority(f"mrstream {config.name} {secret.cluster_id[:8]}", key, names)
    text = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return replace(secret, door=DoorKeys(authority.public_bytes(pem).decode(), text, door_secret))


def key_of(door: DoorKeys) -> EllipticCurvePrivateKey:
    """Return the authority's key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = serialization.load_pem_private_key(door.key.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def general_names(names: Sequence[str]) -> list[x509.GeneralName]:
    """Return names and addresses as a certificate has them."""
    from cryptography import x509

    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _vouched(authority: str) -> list[str]:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(authority.encode())
    limits = certificate.extensions.get_extension_for_class(x509.NameConstraints).value
    return [str(name.value).partition("/")[0] for name in limits.permitted_subtrees or ()]


def _authority(name: str, key: EllipticCurvePrivateKey, names: Sequence[str]) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    allowed = [
        # One address is a network of one.
        x509.IPAddress(ipaddress.ip_network(each.value))
        if isinstance(each, x509.IPAddress)
        else each
        for each in general_names(names)
    ]
    begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.NameConstraints(allowed, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
