"""WebHDFS: the dfs for programs that speak to HDFS over HTTP (decision 22).

`/webhdfs/v1/PATH?op=…`, as Hadoop 3.4 has it, in the shape of HttpFS: one address for everything,
never another host in an answer. Proof of identity comes first, then the rights of the key on every
path that is named, then the operation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mrstream.cluster.config.config import DfsConfig
from mrstream.cluster.errors import ClusterError
from mrstream.web.http.access import Access, Keys
from mrstream.web.http.head import Refused
from mrstream.web.http.reply import Reply
from mrstream.web.http.request import ClientGone, Request
from mrstream.web.http.streams import Files
from mrstream.web.webhdfs import changing, reading, writing
from mrstream.web.webhdfs.call import PREFIX, Call
from mrstream.web.webhdfs.errors import PastEnd, Unsupported, bug_reply, error_reply
from mrstream.web.webhdfs.parameters import Parameters
from mrstream.web.webhdfs.tokens import Tokens

Operation = Callable[[Call], Awaitable[Reply]]

OPERATIONS: dict[str, tuple[str, Operation]] = {
    "OPEN": ("GET", reading.open_file),
    "GETFILESTATUS": ("GET", reading.file_status),
    "GETFILELINKSTATUS": ("GET", reading.file_status),
    "LISTSTATUS": ("GET", reading.list_status),
    "LISTSTATUS_BATCH": ("GET", reading.list_status_batch),
    "GETCONTENTSUMMARY": ("GET", reading.content_summary),
    "GETQUOTAUSAGE": ("GET", reading.quota_usage),
    "GETFILECHECKSUM": ("GET", reading.file_checksum),
    "GETFILEBLOCKLOCATIONS": ("GET", reading.block_locations),
    "GETHOMEDIRECTORY": ("GET", reading.home_directory),
    "GETTRASHROOT": ("GET", reading.trash_root),
    "GETTRASHROOTS": ("GET", reading.trash_roots),
    "CHECKACCESS": ("GET", reading.check_access),
    "GETSTATUS": ("GET", reading.fs_status),
    "GETSERVERDEFAULTS": ("GET", reading.server_defaults),
    "GETACLSTATUS": ("GET", reading.acl_status),
    "GETXATTRS": ("GET", reading.get_xattrs),
    "LISTXATTRS": ("GET", reading.list_xattrs),
    "CREATE": ("PUT", writing.create),
    "MKDIRS": ("PUT", changing.make_directories),
    "RENAME": ("PUT", changing.rename),
    "SETPERMISSION": ("PUT", changing.set_permission),
    "SETOWNER": ("PUT", changing.set_owner),
    "SETTIMES": ("PUT", changing.set_times),
    "SETREPLICATION": ("PUT", changing.set_replication),
    "SETXATTR": ("PUT", changing.set_xattr),
    "REMOVEXATTR": ("PUT", changing.remove_xattr),
    "APPEND": ("POST", writing.append_to),
    "CONCAT": ("POST", writing.concat),
    "DELETE": ("DELETE", changing.delete),
}
_SNAPSHOT = "there are no HDFS snapshots; `mrstream dfs -snapshot SRC DST` copies without bytes"
_ACL = "there are no ACLs beyond the permission bits; keys have rights on paths"
_POLICY = "there are no storage policies"
_CODING = "there is no erasure coding"
_LINK = "there are no symbolic links"
_QUOTA = "quotas are set inside the cluster: `mrstream dfs -setQuota`"
UNSUPPORTED: dict[str, str] = {
    "TRUNCATE": "a file is not cut; write it anew",
    "GET_BLOCK_LOCATIONS": "ask GETFILEBLOCKLOCATIONS",
    **dict.fromkeys(
        ["ALLOWSNAPSHOT", "DISALLOWSNAPSHOT", "CREATESNAPSHOT", "RENAMESNAPSHOT", "DELETESNAPSHOT",
         "GETSNAPSHOTDIFF", "GETSNAPSHOTDIFFLISTING", "GETSNAPSHOTTABLEDIRECTORYLIST",
         "GETSNAPSHOTLIST"],
        _SNAPSHOT,
    ),
    **dict.fromkeys(
        ["MODIFYACLENTRIES", "REMOVEACLENTRIES", "REMOVEDEFAULTACL", "REMOVEACL", "SETACL"], _ACL
    ),
    **dict.fromkeys(
        ["SETSTORAGEPOLICY", "UNSETSTORAGEPOLICY", "GETSTORAGEPOLICY", "GETALLSTORAGEPOLICY",
         "SATISFYSTORAGEPOLICY"],
        _POLICY,
    ),
    **dict.fromkeys(
        ["ENABLEECPOLICY", "DISABLEECPOLICY", "SETECPOLICY", "UNSETECPOLICY", "GETECPOLICY",
         "GETECPOLICIES", "GETECCODECS"],
        _CODING,
    ),
    **dict.fromkeys(["CREATESYMLINK", "GETLINKTARGET"], _LINK),
    **dict.fromkeys(["SETQUOTA", "SETQUOTABYSTORAGETYPE"], _QUOTA),
}  # fmt: skip


class WebHdfs:
    """The face `/webhdfs/`."""

    def __init__(
        self, files: Files, access: Access, keys: Keys, door_secret: bytes, dfs: DfsConfig
    ) -> None:
        self._files = files
        self._access = access
        self._dfs = dfs
        tokens = Tokens(door_secret, keys)
        access.read_token = tokens.read
        self._operations: dict[str, tuple[str, Operation]] = {
            **OPERATIONS,
            "GETDELEGATIONTOKEN": ("GET", tokens.get),
            "RENEWDELEGATIONTOKEN": ("PUT", tokens.renew),
            "CANCELDELEGATIONTOKEN": ("PUT", tokens.cancel),
        }

    async def __call__(self, request: Request) -> Reply:
        """Answer one request; what goes wrong is told in Hadoop's words."""
        operation = ""
        try:
            parameters = Parameters(request.query)
            operation = parameters.text("op").upper()
            if operation in self._operations or operation in UNSUPPORTED:
                request.note.operation = operation
            return await self._answer(request, parameters, operation)
        except (Refused, Unsupported, PastEnd, ClusterError) as error:
            return error_reply(error, operation, changes=request.method not in ("GET", "HEAD"))
        except (ClientGone, ConnectionError):
            raise
        except Exception:
            return bug_reply(request.id)

    async def _answer(self, request: Request, parameters: Parameters, operation: str) -> Reply:
        if not (request.path == PREFIX or request.path.startswith(f"{PREFIX}/")):
            raise Refused(404, f"WebHDFS is at {PREFIX}")
        principal = await self._access.principal(
            request,
            token=parameters.text("delegation"),
            user_name=parameters.text("user.name"),
        )
        if parameters.text("doas") not in ("", principal.user):
            raise Refused(403, f"{principal.key or principal.user} may not act for others (doas)")
        if operation in UNSUPPORTED:
            raise Unsupported(f"{operation}: {UNSUPPORTED[operation]}")
        method, work = self._operations.get(operation, ("", reading.file_status))
        asked = "GET" if request.method == "HEAD" else request.method
        if method != asked:
            raise Refused(
                400,
                f'Invalid value for webhdfs parameter "op": {operation[:40]!r} is not an operation '
                f"of {request.method}",
            )
        return await work(Call(request, principal, parameters, self._files, self._dfs))
