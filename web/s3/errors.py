"""What S3 calls the things that go wrong: a code, a status, words; without IO."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from mrstream.cluster.errors import ClusterError, Unavailable
from mrstream.dfs import errors as dfs
from mrstream.web.http.access import UnknownKey, WrongProof
from mrstream.web.http.head import Refused
from mrstream.web.http.reply import Reply, xml_reply
from mrstream.web.s3.xml import document, element

log = logging.getLogger(__name__)

STATUS = {
    "AccessDenied": 403,
    "AccessForbidden": 403,
    "AuthorizationHeaderMalformed": 400,
    "AuthorizationQueryParametersError": 400,
    "BadDigest": 400,
    "BadRequest": 400,
    "BucketAlreadyExists": 409,
    "BucketAlreadyOwnedByYou": 409,
    "BucketNotEmpty": 409,
    "ConditionalRequestConflict": 409,
    "EntityTooLarge": 400,
    "EntityTooSmall": 400,
    "IncompleteBody": 400,
    "InternalError": 500,
    "InvalidAccessKeyId": 403,
    "InvalidArgument": 400,
    "InvalidBucketName": 400,
    "InvalidDigest": 400,
    "InvalidLocationConstraint": 400,
    "InvalidPart": 400,
    "InvalidPartOrder": 400,
    "InvalidRange": 416,
    "InvalidRequest": 400,
    "InvalidStorageClass": 400,
    "InvalidToken": 400,
    "KeyTooLongError": 400,
    "MalformedXML": 400,
    "MaxMessageLengthExceeded": 400,
    "MetadataTooLarge": 400,
    "MethodNotAllowed": 405,
    "MissingContentLength": 411,
    "NoSuchBucket": 404,
    "NoSuchBucketPolicy": 404,
    "NoSuchCORSConfiguration": 404,
    "NoSuchKey": 404,
    "NoSuchLifecycleConfiguration": 404,
    "NoSuchObjectLockConfiguration": 404,
    "NoSuchPublicAccessBlockConfiguration": 404,
    "NoSuchTagSet": 404,
    "NoSuchUpload": 404,
    "NoSuchVersion": 404,
    "NoSuchWebsiteConfiguration": 404,
    "NotImplemented": 501,
    "ObjectIsDirectory": 409,
    "ObjectLockConfigurationNotFoundError": 404,
    "ObjectParentIsFile": 409,
    "OwnershipControlsNotFoundError": 404,
    "PreconditionFailed": 412,
    "QuotaExceeded": 403,
    "ReplicationConfigurationNotFoundError": 404,
    "RequestTimeTooSkewed": 403,
    "RequestTimeout": 400,
    "ServerSideEncryptionConfigurationNotFoundError": 404,
    "SignatureDoesNotMatch": 403,
    "SlowDown": 503,
    "XAmzContentSHA256Mismatch": 400,
}
_REFUSALS = {
    400: "InvalidRequest",
    401: "AccessDenied",
    403: "AccessDenied",
    408: "RequestTimeout",
    413: "MaxMessageLengthExceeded",
    417: "InvalidRequest",
    429: "SlowDown",
    503: "SlowDown",
}
TABLE: tuple[tuple[type[ClusterError], str], ...] = (
    (dfs.NoSuchFile, "NoSuchKey"),
    (dfs.FileReplaced, "PreconditionFailed"),
    (dfs.FileExists, "PreconditionFailed"),
    (dfs.IsADirectory, "ObjectIsDirectory"),
    (dfs.NotADirectory, "ObjectParentIsFile"),
    (dfs.DirectoryNotEmpty, "BucketNotEmpty"),
    (dfs.PermissionDenied, "AccessDenied"),
    (dfs.MountPoint, "AccessDenied"),
    (dfs.NameQuotaExceeded, "QuotaExceeded"),
    (dfs.SpaceQuotaExceeded, "QuotaExceeded"),
    (dfs.BadPath, "InvalidArgument"),
    (dfs.BadRequest, "InvalidArgument"),
    (dfs.FileBusy, "SlowDown"),
    (dfs.WriterFenced, "SlowDown"),
    (Unavailable, "SlowDown"),
)
"""The first that fits."""


class S3Error(Exception):
    """An answer by one of S3's codes."""

    def __init__(
        self, code: str, words: str, headers: Iterable[tuple[str, str]] = (), **details: str
    ) -> None:
        super().__init__(words)
        self.code = code
        self.status = STATUS[code]
        self.headers = tuple(headers)
        self.details = details
        """Further elements of the answer, by name."""


def named(error: Exception) -> S3Error:
    """The same by its name in S3."""
    if isinstance(error, S3Error):
        return error
    if isinstance(error, UnknownKey):
        return S3Error("InvalidAccessKeyId", error.words)
    if isinstance(error, WrongProof):
        return S3Error("SignatureDoesNotMatch", error.words)
    if isinstance(error, Refused):
        found = S3Error(_REFUSALS.get(error.status, "InvalidRequest"), error.words, error.headers)
        if error.status in (408, 429):
            found.status = error.status
        return found
    for kind, code in TABLE:
        if isinstance(error, kind):
            again = [("Retry-After", "5")] if code == "SlowDown" else []
            return S3Error(code, str(error), again)
    if isinstance(error, ClusterError):
        return S3Error("InternalError", str(error))
    log.error("a bug", exc_info=error)
    return S3Error("InternalError", "an error of ours; the gateway's log has more")


def error_document(error: S3Error, resource: str, request_id: str) -> str:
    return document(
        "Error",
        element("Code", error.code),
        element("Message", str(error)),
        *(element(name, value) for name, value in error.details.items()),
        element("Resource", resource),
        element("RequestId", request_id),
        namespace=False,
    )


def error_reply(error: Exception, resource: str, request_id: str, *, head: bool) -> Reply:
    """The answer to what went wrong; HEAD gets its status alone."""
    found = named(error)
    close = isinstance(error, Refused) and error.close
    if head:
        return Reply(found.status, b"", found.headers, close=close)
    text = error_document(found, resource, request_id)
    reply = xml_reply(text, found.status, found.headers)
    return Reply(reply.status, reply.body, reply.headers, close=close)


def bug_reply(resource: str, request_id: str) -> Reply:
    """The answer to a bug of ours: where to look, and nothing of what was found."""
    log.exception("request=%s: bug", request_id)
    error = S3Error("InternalError", f"an error of ours: request {request_id}")
    return error_reply(error, resource, request_id, head=False)
