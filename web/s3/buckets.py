"""Buckets: directories of the root. What is not there is told truthfully."""

from __future__ import annotations

from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.errors import DirectoryNotEmpty, FileExists
from mrstream.dfs.metadata.paths import split_path
from mrstream.dfs.protocol import FileStatus
from mrstream.web.http.reply import Reply, empty_reply
from mrstream.web.s3.call import Call, answer, check_bucket, iso_time, read_document
from mrstream.web.s3.errors import S3Error
from mrstream.web.s3.listing import make_token, read_token
from mrstream.web.s3.names import is_bucket_name
from mrstream.web.s3.putting import OWNERS_ACLS, check_headers
from mrstream.web.s3.xml import element, escaped, person

BUCKETS_MAX = 10_000
LOCATION = "LocationConstraint"
PLACE = "s3.place"
PLACE_MAX = 64
EMPTY = {
    "versioning": "VersioningConfiguration",
    "notification": "NotificationConfiguration",
    "logging": "BucketLoggingStatus",
    "accelerate": "AccelerateConfiguration",
}
"""Answered as what is off."""
MISSING = {
    "cors": "NoSuchCORSConfiguration",
    "encryption": "ServerSideEncryptionConfigurationNotFoundError",
    "lifecycle": "NoSuchLifecycleConfiguration",
    "object-lock": "ObjectLockConfigurationNotFoundError",
    "ownershipControls": "OwnershipControlsNotFoundError",
    "policy": "NoSuchBucketPolicy",
    "policyStatus": "NoSuchBucketPolicy",
    "publicAccessBlock": "NoSuchPublicAccessBlockConfiguration",
    "replication": "ReplicationConfigurationNotFoundError",
    "tagging": "NoSuchTagSet",
    "website": "NoSuchWebsiteConfiguration",
}
"""Answered as what was never set."""


async def list_buckets(call: Call) -> Reply:
    """ListBuckets: those in which the key reaches something."""
    query = call.request.query
    prefix, token = query.get("prefix"), query.get("continuation-token")
    most = call.number("max-buckets", BUCKETS_MAX, BUCKETS_MAX)
    after = read_token(call, token) if token else ""
    root = call.place.root

    def find(client: DfsClient) -> list[FileStatus]:
        return [each for each in client.list(root) if each.is_directory]

    found = {each.path.rpartition("/")[2]: each for each in await call.ask(find)}
    names = sorted(
        name
        for name in found
        if name.startswith(prefix) and name > after and is_bucket_name(name)
        and call.may_see_bucket(name)
    )  # fmt: skip
    shown = names[:most]
    told = [
        element(
            "Bucket",
            "",
            element("Name", name),
            element("CreationDate", iso_time(found[name].created_at_s)),
        )
        for name in shown
    ]
    more = (
        element("ContinuationToken", make_token(call, shown[-1])) if names[most:] and shown else ""
    )
    owner = person("Owner", call.principal.user)
    return answer("ListAllMyBucketsResult", owner, f"<Buckets>{''.join(told)}</Buckets>", more)


async def create_bucket(call: Call) -> Reply:
    """CreateBucket; any place is ours."""
    check_headers(call)
    if call.header("x-amz-bucket-object-lock-enabled").lower() == "true":
        raise S3Error("NotImplemented", "there are no locks of objects here")
    path = call.bucket_path()
    call.request.note.paths.append(path)
    call.principal.check(split_path(path), writes=True)
    body = await call.body()
    place = read_document(body, "CreateBucketConfiguration").value(LOCATION) if body else ""
    if len(place) > PLACE_MAX:
        raise S3Error("InvalidLocationConstraint", f"a place has {PLACE_MAX} signs at most")
    root = call.place.root

    def make(client: DfsClient) -> None:
        if root != "/":
            client.make_directory(root, parents=True)
        try:
            client.make_directory(path)
        except FileExists:
            found = client.stat(path)
            mine = found.is_directory and found.owner == client.user
            if mine and not place:
                return  # as in us-east-1: what is there is as it was asked for
            code = "BucketAlreadyOwnedByYou" if mine else "BucketAlreadyExists"
            raise S3Error(code, f"there is {call.bucket} already", BucketName=call.bucket) from None
        if place:
            client.set_attributes(path, {PLACE: place.encode()})

    await call.ask(make)
    return empty_reply(200, [("Location", f"/{call.bucket}")])


async def delete_bucket(call: Call) -> Reply:
    """DeleteBucket: only one without keys; uploads and PUTs that are not complete go with it."""
    path = call.enter(writes=True)
    full = DirectoryNotEmpty(f"there are objects in {call.bucket}")

    def delete(client: DfsClient) -> None:
        check_bucket(client, path, call.bucket)
        client.check_removable(path)
        position = ""
        while True:
            page = client.find_keys(path, "", position, limit=1)
            if page.entries:
                raise full
            if not page.next:
                break
            position = page.next
        # Directories without anything in them are no keys. Each goes only if it is empty then, but
        # for what is still being written: what is stored meanwhile is not lost.
        for each in sorted(client.find(path), key=lambda found: len(found.path), reverse=True):
            if not each.is_directory:
                raise full
            client.delete(each.path, skip_trash=True, unseen=True, file_id=each.file_id)

    await call.ask(delete)
    return empty_reply(204)


async def head_bucket(call: Call) -> Reply:
    await _check_seen(call)
    return empty_reply(200, [("x-amz-bucket-region", "us-east-1")])


async def _check_seen(call: Call) -> FileStatus:
    """The bucket, if anything that the key reaches lies in it."""
    path = call.bucket_path()
    call.request.note.paths.append(path)
    if not call.may_see_bucket(call.bucket):
        raise S3Error("AccessDenied", "the key does not reach this bucket")
    return await call.ask(lambda client: check_bucket(client, path, call.bucket))


async def location(call: Call) -> Reply:
    """GetBucketLocation: what it was made for. There is one place, which S3 tells by nothing."""
    await _check_seen(call)
    path = call.bucket_path()
    found = await call.ask(lambda client: client.attributes(path))
    return answer(LOCATION, escaped(found.values.get(PLACE, b"").decode()))


async def request_payment(call: Call) -> Reply:
    await _check_seen(call)
    return answer("RequestPaymentConfiguration", element("Payer", "BucketOwner"))


async def acl(call: Call) -> Reply:
    """GetBucketAcl, and that of an object: its owner has everything, by ACLs nobody else does."""
    if call.key:
        path = call.path()
        status = await call.ask(lambda client: client.stat(path))
    else:
        status = await _check_seen(call)
    user = status.owner
    grantee = (
        '<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser">'
        f"{element('ID', user)}{element('DisplayName', user)}</Grantee>"
    )
    grant = element("Grant", "", grantee, element("Permission", "FULL_CONTROL"))
    return answer(
        "AccessControlPolicy", person("Owner", user), element("AccessControlList", "", grant)
    )


async def set_acl(call: Call) -> Reply:
    """PutBucketAcl, PutObjectAcl: what is so anyway is done; nothing can be granted."""
    check_headers(call)
    wanted = call.header("x-amz-acl")
    body = await call.body()
    if call.key:
        path = call.path(writes=True)
        await call.ask(lambda client: client.stat(path))
    else:
        call.enter(writes=True)
        await _check_seen(call)
    if body or wanted not in OWNERS_ACLS:
        raise S3Error("NotImplemented", "there are no ACLs here: keys have paths and rights")
    return empty_reply(200)


async def configuration(call: Call) -> Reply:
    """What is asked of a bucket and is never set here."""
    await _check_seen(call)
    for name, root in EMPTY.items():
        if name in call.request.query:
            return answer(root)
    for name, code in MISSING.items():
        if name in call.request.query:
            raise S3Error(code, f"{call.bucket} has no {name}", BucketName=call.bucket)
    raise S3Error("NotImplemented", "this is not known here")
