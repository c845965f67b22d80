"""Bytes of files and text of bytes, with the errors of this package."""

from __future__ import annotations

import codecs

from ._errors import BadRecordError, Reason
from ._remote import File


def read_bytes(file: File) -> bytes:
    """All of a file but a byte order mark. Raises BadRecordError when it can't be read or holds nothing."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise BadRecordError(str(file), None, Reason.UNREADABLE, error.strerror or str(error)) from error
    if not data:
        raise BadRecordError(str(file), None, Reason.EMPTY_FILE, "0 bytes")
    return data.removeprefix(codecs.BOM_UTF8)


def decode(data: bytes, path: str, number: int | None) -> str:
    """The text of UTF-8 bytes. Raises BadRecordError, with the line when ``number`` is None."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if number is None:
            number = data.count(b"\n", 0, error.start) + 1
        detail = f"byte 0x{data[error.start]:02x} is not UTF-8 ({error.reason}); convert the file to UTF-8"
        raise BadRecordError(path, number, Reason.UNDECODABLE, detail) from error
