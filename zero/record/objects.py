"""Objects of a record where they lie: git's by one `git cat-file --batch`, DVC's in its cache folder by MD5.

Nothing is cloned, checked out or fetched. What is not here is `None`, which is for the caller to report.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import NamedTuple

from zero.errors import LineageError
from zero.storage.files import CHUNK_BYTES
from zero.storage.vcs import environment, git

TREE = b"40000"
"""Mode of a folder inside a git tree."""
DIR_SUFFIX = ".dir"
"""Ending of the MD5 under which DVC lists the files of a folder."""


class GitReader:
    """Objects of one repository; a context, for it keeps a process."""

    def __init__(self, repository: Path, also: Path | None = None) -> None:
        """Starts the process. `also`: another clone, whose objects are found too."""
        self.repository = repository
        self._trees: dict[str, dict[str, str]] = {}
        other = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": _objects_dir(also)} if also else {}
        self._process = subprocess.Popen(
            ["git", "cat-file", "--batch"],
            cwd=repository,
            env=environment() | {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_NO_LAZY_FETCH": "1"} | other,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> "GitReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def read(self, name: str) -> bytes | None:
        """Content of an object, such as `go9/gen-0001:dvc.lock`; None where there is none.

        Raises:
          LineageError: git gave up, which it does over a damaged object.
        """
        found = self._ask(name)
        return found[1] if found else None

    def files(self, tree: str) -> dict[str, str]:
        """Object names of all files below a tree (`<commit>:zero`), by path relative to it; empty where there is none.

        Raises:
          LineageError: git gave up.
        """
        found = self._ask(tree)
        return self._files(*found) if found else {}

    def entries(self, tree: str) -> dict[str, str]:
        """Object names of what lies directly in a tree, by name."""
        found = self._ask(tree)
        return {path: child for _, path, child in _entries(*found)} if found else {}

    def _files(self, name: str, content: bytes) -> dict[str, str]:
        if name not in self._trees:
            files: dict[str, str] = {}
            for is_tree, path, child in _entries(name, content):
                if is_tree:
                    files |= {f"{path}/{below}": blob for below, blob in self.files(child).items()}
                else:
                    files[path] = child
            self._trees[name] = files
        return self._trees[name]

    def _ask(self, name: str) -> tuple[str, bytes] | None:
        """Full name and content of an object."""
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(name.encode() + b"\n")
            self._process.stdin.flush()
            words = self._process.stdout.readline().split()
        except OSError:
            words = []
        if not words:
            raise LineageError(f"git gave up over {name} in {self.repository}; see `git fsck` there")
        if words[-1] in (b"missing", b"ambiguous"):
            return None
        size = int(words[-1])
        content = self._process.stdout.read(size + 1)[:size]
        if len(content) < size:
            raise LineageError(f"git gave up over {name} in {self.repository}; see `git fsck` there")
        return words[0].decode(), content


class Digests(NamedTuple):
    """What a file in DVC's cache holds."""

    md5: str
    sha256: str
    num_bytes: int


class DataCache:
    """DVC's cache of a project, read by MD5. A file is read once for its digests, however many generations have it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "files" / "md5"
        self._digests: dict[str, Digests | None] = {}
        self._listings: dict[str, Mapping[str, str] | None] = {}

    def path(self, md5: str) -> Path:
        """Where the object of that MD5 is, if it is here."""
        return self._folder / md5[:2] / md5[2:]

    def digests(self, md5: str) -> Digests | None:
        """What the object of that name holds; None where it is not here."""
        if md5 not in self._digests:
            self._digests[md5] = _digests(self.path(md5))
        return self._digests[md5]

    def read(self, md5: str) -> bytes | None:
        """Content of an object, whatever it is; None where it is not here."""
        try:
            return self.path(md5).read_bytes()
        except OSError:
            return None

    def listing(self, md5: str) -> Mapping[str, str] | None:
        """MD5 of the files of a folder by path; None where the list is not here or is none."""
        if md5 not in self._listings:
            self._listings[md5] = _listing(self.read(md5))
        return self._listings[md5]


def source_digest(files: Mapping[str, bytes]) -> str:
    """Fingerprint of sources by their path below `zero/`, as `zero.shards.spec.code_digest` makes it."""
    digest = hashlib.sha256()
    for path in sorted(files, key=PurePosixPath):
        digest.update(path.encode() + b"\0" + files[path] + b"\0")
    return digest.hexdigest()


def _entries(name: str, content: bytes) -> Iterator[tuple[bool, str, str]]:
    """Whether a folder, name and object name of what is in a git tree."""
    size, at = len(name) // 2, 0
    while at < len(content):
        space, end = content.index(b" ", at), content.index(b"\0", at)
        mode, path = content[at:space], content[space + 1 : end].decode(errors="replace")
        at = end + 1 + size
        yield mode == TREE, path, content[end + 1 : at].hex()


def _objects_dir(repository: Path) -> str:
    return str((repository / git(repository, "rev-parse", "--git-path", "objects").strip()).resolve())


def _digests(path: Path) -> Digests | None:
    md5, sha256, size = hashlib.md5(usedforsecurity=False), hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                md5.update(chunk)
                sha256.update(chunk)
                size += len(chunk)
    except OSError:
        return None
    return Digests(md5.hexdigest(), sha256.hexdigest(), size)


def _listing(content: bytes | None) -> Mapping[str, str] | None:
    if content is None:
        return None
    try:
        return {str(each["relpath"]): str(each["md5"]) for each in json.loads(content)}
    except (ValueError, KeyError, TypeError):
        return None
