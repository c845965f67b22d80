"""Files that are not on this machine, by fsspec: ``s3://``, ``gs://``, ``https://``, ``memory://`` and all that it knows.

A ``RemoteFile`` offers what sources use of a ``pathlib.Path``. Reading one brings all of it into memory, but for Parquet, of
which only the row groups that are asked for are fetched.
"""

from __future__ import annotations

import importlib.util
import io
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast, final

from ._errors import DataError


@final
@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file by its URL. Needs the extra ``ax-input[remote]``, and what fsspec asks for the protocol (``s3fs``, ``gcsfs``)."""

    url: str
    size: int | None
    """Bytes; None when nobody says."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return posixpath.basename(self.url)

    def open(self) -> IO[bytes]:
        """The file, open for reading and seeking. Raises OSError."""
        import fsspec  # type: ignore[import-untyped]  # an extra, without types

        return cast(IO[bytes], fsspec.open(self.url, "rb").open())

    def read_bytes(self) -> bytes:
        """All of it. Raises OSError."""
        with self.open() as file:
            return file.read()

    def __str__(self) -> str:
        return self.url


File = Path | RemoteFile
"""What sources read."""


def is_url(path: str) -> bool:
    """Whether ``path`` is for fsspec."""
    return "://" in path


def size_of(file: File) -> int:
    """The bytes of a file; 0 when it can't be told, for reading it will tell what is wrong."""
    if isinstance(file, RemoteFile):
        return file.size or 0
    try:
        return file.stat().st_size
    except OSError:
        return 0


def find_remote(url: str, endings: tuple[str, ...]) -> Iterator[RemoteFile]:
    """The file at ``url``, or those with an ending in the folder there, hidden ones left out, in the order of their paths.

    Raises DataError when there is nothing, or no way to it.
    """
    if importlib.util.find_spec("fsspec") is None:
        raise DataError(f"{url}: files that aren't on this machine need fsspec: pip install 'ax-input[remote]'")
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(url)
        found: dict[str, dict[str, Any]] = system.find(root, detail=True)
        if list(found) == [root] and not found[root]:  # what some give for a path that is a file
            found[root] = system.info(root)
    except (OSError, ImportError, ValueError) as error:
        raise DataError(f"{url}: can't be reached: {error}") from error
    if not found:
        raise DataError(f"{url}: no such file or folder")
    for path, info in sorted(found.items()):
        inside = posixpath.relpath(path, root)
        hidden = any(part.startswith(".") for part in inside.split("/"))
        if inside == "." or (not hidden and path.lower().endswith(endings)):
            yield RemoteFile(system.unstrip_protocol(path), info.get("size"))


def local_copy_needed(file: RemoteFile, what: str) -> DataError:
    """What to raise for a format that is read in place."""
    return DataError(f"{file}: {what} are read in place: copy the file to this machine")


def seekable(file: File) -> IO[bytes] | str:
    """What pyarrow opens: the path of a local file, or a remote one as a file object."""
    return file.open() if isinstance(file, RemoteFile) else str(file)


def in_memory(file: File) -> io.BytesIO:
    """All of a file, to be read like one. Raises OSError."""
    return io.BytesIO(file.read_bytes())
