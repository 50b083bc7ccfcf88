"""Files that a browser brings: out of the form, into the dfs, each visible when it is whole.

Fed the body of the form; the token must come before the first file. What breaks off leaves nothing
of the file that was on its way, and says which ones are there.
"""

from __future__ import annotations

from mrstream.cluster.errors import UserError
from mrstream.view.actions import inside
from mrstream.view.picture import Upload
from mrstream.web.pages.forms import is_token
from mrstream.web.pages.multipart import BadForm, Multipart, PartBegins, PartBytes, PartEnds
from mrstream.web.pages.visit import OutOfBounds, Visit

FIELD_BYTES_MAX = 4096


class Receiver:
    """The files of one form on their way into one directory."""

    def __init__(self, visit: Visit, into: str, boundary: bytes) -> None:
        self._visit, self._into = visit, visit.visitor.check(into)
        self._form = Multipart(boundary)
        self._fields: dict[str, str] = {}
        self._field, self._text = "", b""
        self._upload: Upload | None = None
        self._path = ""
        self.stored: list[str] = []

    def feed(self, data: bytes) -> None:
        for event in self._form.feed(data):
            match event:
                case PartBegins(name, None):
                    self._field, self._text = name, b""
                case PartBegins(_, filename) if filename:
                    self._begin_file(filename)
                case PartBegins():  # a box in which no file was chosen
                    self._field, self._text = "nothing", b""
                case PartBytes(piece):
                    self._take(piece)
                case PartEnds():
                    self._end()

    def finish(self) -> str:
        """Say that the form is whole; return what was stored, in words."""
        self._form.finish()
        if not self.stored:
            raise UserError("no file was chosen")
        return f"uploaded {', '.join(self.stored)}"

    def abandon(self) -> None:
        """Leave nothing of a file that was on its way."""
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.abandon()

    def _begin_file(self, filename: str) -> None:
        target = f"/upload{self._into}"
        if not is_token(self._visit.visitor, target, self._fields.get("token", "")):
            raise OutOfBounds("this form is not from a page of yours; open the page again")
        name = filename.replace("\\", "/").rpartition("/")[2]
        self._path = self._visit.visitor.check(inside(self._into, name))
        replace = self._fields.get("replace") == "yes"
        self._upload = self._visit.source.upload(self._path, replace=replace)

    def _take(self, piece: bytes) -> None:
        if self._upload is not None:
            self._upload.write(piece)
            return
        self._text += piece
        if len(self._text) > FIELD_BYTES_MAX:
            raise BadForm(f"the field {self._field!r} has more than {FIELD_BYTES_MAX} bytes")

    def _end(self) -> None:
        if self._upload is None:
            self._fields[self._field] = self._text.decode("utf-8", "replace")
            return
        self._upload.close()
        self._upload = None
        self.stored.append(self._path)
