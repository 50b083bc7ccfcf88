"""S3: the dfs for programs that speak to Amazon's object store (decision 30).

Path style (`/BUCKET/KEY`) and, where a name was given for it, host style. A request is signed, then
it has the rights of its key on every path that it names, then it is carried out.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from mrstream.cluster.config.config import DfsConfig
from mrstream.cluster.errors import ClusterError
from mrstream.web.http.access import Access, Principal
from mrstream.web.http.head import Refused, parse_host
from mrstream.web.http.reply import Reply
from mrstream.web.http.request import ClientGone, Request
from mrstream.web.http.streams import Files
from mrstream.web.s3 import buckets, completing, listing, multipart, objects, putting, sigv4
from mrstream.web.s3.call import Call, Place, answer
from mrstream.web.s3.errors import S3Error, bug_reply, error_reply

Operation = Callable[[Call], Awaitable[Reply]]

SUB_RESOURCES = frozenset(
    {
        "accelerate",
        "acl",
        "analytics",
        "append",
        "attributes",
        "cors",
        "delete",
        "encryption",
        "intelligent-tiering",
        "inventory",
        "legal-hold",
        "lifecycle",
        "location",
        "logging",
        "metadataTable",
        "metrics",
        "notification",
        "object-lock",
        "ownershipControls",
        "policy",
        "policyStatus",
        "publicAccessBlock",
        "replication",
        "requestPayment",
        "restore",
        "retention",
        "select",
        "session",
        "tagging",
        "torrent",
        "uploads",
        "versioning",
        "versions",
        "website",
    }
)
"""Words of a query that say what of a bucket or object is meant; others only say how."""


async def _empty_tags(call: Call) -> Reply:
    """GetObjectTagging: there are none."""
    path = call.path()
    await call.ask(lambda client: objects.look(client, path, call.key))
    return answer("Tagging", "<TagSet></TagSet>")


async def _no_lock(call: Call) -> Reply:
    path = call.path()
    await call.ask(lambda client: objects.look(client, path, call.key))
    raise S3Error("NoSuchObjectLockConfiguration", "there are no locks of objects here")


async def _no_torrent(call: Call) -> Reply:
    path = call.path()
    await call.ask(lambda client: objects.look(client, path, call.key))
    raise S3Error("NoSuchKey", "there are no torrents here")


def _preflight(request: Request) -> S3Error:
    """What a browser is told that asks for a page of another site: no, whatever it is."""
    if not all(name in request.headers for name in ("origin", "access-control-request-method")):
        return S3Error("BadRequest", "Origin and Access-Control-Request-Method are needed")
    return S3Error("AccessForbidden", "no page of another site may come in here")


ROWS: tuple[tuple[str, str, str, str, Operation], ...] = (
    # method, of what, sub-resource, name, operation
    ("GET", "service", "", "ListBuckets", buckets.list_buckets),
    ("PUT", "bucket", "", "CreateBucket", buckets.create_bucket),
    ("DELETE", "bucket", "", "DeleteBucket", buckets.delete_bucket),
    ("HEAD", "bucket", "", "HeadBucket", buckets.head_bucket),
    ("GET", "bucket", "location", "GetBucketLocation", buckets.location),
    ("GET", "bucket", "requestPayment", "GetBucketRequestPayment", buckets.request_payment),
    ("GET", "bucket", "acl", "GetBucketAcl", buckets.acl),
    ("GET", "bucket", "versions", "ListObjectVersions", listing.list_versions),
    ("GET", "bucket", "uploads", "ListMultipartUploads", multipart.list_uploads),
    ("POST", "bucket", "delete", "DeleteObjects", objects.delete_objects),
    ("GET", "object", "", "GetObject", objects.get_object),
    ("HEAD", "object", "", "HeadObject", objects.head_object),
    ("PUT", "object", "", "PutObject", putting.put_object),
    ("DELETE", "object", "", "DeleteObject", objects.delete_object),
    ("PUT", "bucket", "acl", "PutBucketAcl", buckets.set_acl),
    ("GET", "object", "acl", "GetObjectAcl", buckets.acl),
    ("PUT", "object", "acl", "PutObjectAcl", buckets.set_acl),
    ("GET", "object", "torrent", "GetObjectTorrent", _no_torrent),
    ("GET", "object", "tagging", "GetObjectTagging", _empty_tags),
    ("GET", "object", "retention", "GetObjectRetention", _no_lock),
    ("GET", "object", "legal-hold", "GetObjectLegalHold", _no_lock),
    ("GET", "object", "attributes", "GetObjectAttributes", objects.get_attributes),
    ("POST", "object", "uploads", "CreateMultipartUpload", multipart.create),
    ("PUT", "object", "uploadId", "UploadPart", multipart.upload_part),
    ("POST", "object", "uploadId", "CompleteMultipartUpload", completing.complete),
    ("DELETE", "object", "uploadId", "AbortMultipartUpload", multipart.abort),
    ("GET", "object", "uploadId", "ListParts", multipart.list_parts),
    *(
        ("GET", "bucket", name, "GetBucketConfiguration", buckets.configuration)
        for name in (*buckets.EMPTY, *buckets.MISSING)
    ),
)
TABLE = {(method, what, sub): (name, work) for method, what, sub, name, work in ROWS}


class S3:
    """The face of the second port."""

    def __init__(
        self,
        files: Files,
        access: Access,
        door_secret: bytes,
        dfs: DfsConfig,
        root: str = "/",
        virtual_host: str = "",
    ) -> None:
        self._access = access
        self._place = Place(files, dfs, door_secret, root)
        self._virtual_host = virtual_host

    async def __call__(self, request: Request) -> Reply:
        """Answer one request; what goes wrong is told by S3's codes."""
        request.note.face = "s3"
        head = request.method == "HEAD"
        try:
            reply = await self._answer(request)
        except (Refused, S3Error, ClusterError) as error:
            reply = error_reply(error, request.path, request.id, head=head)
        except (ClientGone, ConnectionError):
            raise
        except Exception:
            reply = bug_reply(request.path, request.id)
        return reply.with_headers(("x-amz-request-id", request.id))

    async def _answer(self, request: Request) -> Reply:
        if request.method == "OPTIONS":
            request.note.operation = "Preflight"
            raise _preflight(request)
        bucket, key = self._named(request)
        name, work = _operation(request, bucket, key)
        request.note.operation = name
        principal, signing = await self._signed(request)
        if request.query.get("versionId") not in ("", "null"):
            raise S3Error("NoSuchVersion", "there are no versions here")
        call = Call(request, principal, signing, self._place, bucket, key)
        if bucket and name != "CreateBucket":
            await call.check_owner()
        return await work(call)

    def _named(self, request: Request) -> tuple[str, str]:
        """The bucket and key of a request, by its path or by the name it was sent to."""
        path = request.path[1:]
        if self._virtual_host:
            name, _ = parse_host(request.host)
            bucket, dot, _ = name.rpartition(f".{self._virtual_host}")
            if dot and bucket:
                return bucket, path
        bucket, _, key = path.partition("/")
        return bucket, key

    async def _signed(self, request: Request) -> tuple[Principal, sigv4.Signing]:
        claim = sigv4.claim_of(request.target, request.headers)
        if claim is None:
            raise S3Error("AccessDenied", "a signed request is needed: `mrstream key add`")
        if "x-amz-security-token" in request.headers or "X-Amz-Security-Token" in request.query:
            raise S3Error("InvalidToken", "there are no temporary keys here")
        sigv4.check_time(claim, time.time())
        sigv4.check_all_signed(claim, request.headers)
        return await self._access.signer(
            request,
            claim.key_id,
            lambda secret: sigv4.verify(
                claim, secret, request.method, request.target, request.headers
            ),
            # Whoever reads these could send another body, or ask again for what they name.
            reusable=claim.is_presigned
            or claim.payload in (sigv4.UNSIGNED, sigv4.STREAMING_UNSIGNED),
        )


def _operation(request: Request, bucket: str, key: str) -> tuple[str, Operation]:
    """Which operation a request is: by its method, what it names, and its sub-resource."""
    what = "object" if key else "bucket" if bucket else "service"
    method, query = request.method, request.query
    named = {name for name, _ in query.pairs}
    sub = next(iter(sorted(named & SUB_RESOURCES)), "")
    if "uploadId" in named and what == "object":
        sub = "uploadId"
        if method == "PUT" and "x-amz-copy-source" in request.headers:
            return "UploadPartCopy", multipart.upload_part_copy
    if (method, what, sub) == ("GET", "bucket", ""):
        if query.get("list-type") == "2":
            return "ListObjectsV2", listing.list_objects_v2
        return "ListObjects", listing.list_objects
    if (method, what, sub) == ("PUT", "object", "") and "x-amz-copy-source" in request.headers:
        return "CopyObject", putting.copy_object
    found = TABLE.get((method, what, sub))
    if found is not None:
        return found
    wanted = f"{method} of a {what}" + (f" with ?{sub}" if sub else "")
    if sub or method == "POST":
        return "NotImplemented", _refuse(S3Error("NotImplemented", f"{wanted} is not done here"))
    return "MethodNotAllowed", _refuse(S3Error("MethodNotAllowed", f"{wanted} means nothing"))


def _refuse(error: S3Error) -> Operation:
    async def refuse(call: Call) -> Reply:
        raise error

    return refuse
