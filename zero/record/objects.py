"""Reads a record's objects where they are stored: git's with one `git cat-file --batch`, DVC's from its cache by MD5.

Reading never clones, checks out or fetches. A missing object is `None`, which the caller reports.
"""

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from zero.errors import LineageError
from zero.storage.vcs import environment, git

MD5_PATTERN = re.compile(r"[0-9a-f]{32}(\.dir)?")
"""Name of an object in DVC's cache; `.dir`: the list of the files of a folder."""


class Change(NamedTuple):
    """A file that differs between two commits: mode and object name in each; empty in the one that lacks the file."""

    old: str
    new: str


class GitReader:
    """Objects of one repository. A context manager, because it owns a process."""

    def __init__(self, repository: Path, also: Path | None = None) -> None:
        """Starts the process.

        Args:
          repository: folder of the clone.
          also: another clone, whose objects are found too.
        """
        self.repository = repository
        # Replaced objects would hide what was recorded, and a lazy fetch would need a network.
        self._env = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_NO_LAZY_FETCH": "1"}
        if also:
            self._env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _objects_dir(also)
        self._process = subprocess.Popen(
            ["git", "cat-file", "--batch"],
            cwd=repository,
            env=environment() | self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> "GitReader":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout
        with suppress(BrokenPipeError):  # git ended, and a request is left in the buffer
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def read(self, name: str) -> bytes | None:
        """Content of an object, such as `go9/gen-0001:dvc.lock`; None if there is no such object.

        Raises:
          LineageError: git ended, which it does on a corrupt object.
        """
        found = self._request(name)
        return found[1] if found else None

    def object_name(self, name: str) -> str | None:
        """Full name of an object; None if there is no such object.

        Raises:
          LineageError: git ended.
        """
        found = self._request(name)
        return found[0] if found else None

    def files(self, tree: str) -> dict[str, str]:
        """Object names of all files below a tree (`<commit>:zero`), by relative path; empty if there is no such tree.

        Raises:
          LineageError: git ended.
        """
        if self.object_name(tree) is None:
            return {}
        # `-z`: without it git quotes paths with unusual characters.
        listed = git(self.repository, "ls-tree", "-r", "-z", tree, env=self._env)
        lines = (line.partition("\t") for line in listed.split("\0") if line)  # `<mode> <type> <name>`, tab, path
        return {path: entry.split()[-1] for entry, _, path in lines}

    def changes(self, old: str, new: str) -> dict[str, Change] | None:
        """The files that differ between two commits, by path; None if git lacks one of the commits.

        Raises:
          LineageError: git ended, which it does on a corrupt object.
        """
        # As names of objects: the header of a foreign commit could hold an option of git.
        trees = [self.object_name(f"{commit}^{{tree}}") for commit in (old, new)]
        if None in trees:
            return None
        listed = git(
            self.repository,
            *("diff-tree", "-r", "-z", "--no-renames", "--ignore-submodules=none", *map(str, trees)),
            env=self._env,
        ).split("\0")
        found = {}
        for entry, path in zip(listed[::2], listed[1::2], strict=False):  # after the last NUL there is nothing
            # `:<mode> <mode> <name> <name> <status>`; mode 000000: the commit lacks the file
            modes, names = entry[1:].split()[:2], entry.split()[2:4]
            found[path] = Change(
                *(f"{mode} {name}" if int(mode) else "" for mode, name in zip(modes, names, strict=True))
            )
        return found

    def _request(self, name: str) -> tuple[str, bytes] | None:
        """Full name and content of an object.

        git answers `<name> <type> <size>`, then the content and a newline; or `<request> missing`.
        """
        assert self._process.stdin and self._process.stdout
        if "\n" in name:  # git would read two requests, and each later answer would belong to the request before
            return None
        try:
            self._process.stdin.write(name.encode() + b"\n")
            self._process.stdin.flush()
            header = self._process.stdout.readline().split()
        except OSError:
            header = []
        if not header:
            raise _git_ended(name, self.repository)
        if header[-1] in (b"missing", b"ambiguous"):
            return None
        size = int(header[-1])
        content = self._process.stdout.read(size + 1)[:size]
        if len(content) < size:
            raise _git_ended(name, self.repository)
        return header[0].decode(), content


class Digests(NamedTuple):
    """Digests and size of a file in DVC's cache."""

    md5: str
    sha256: str
    num_bytes: int


class DataCache:
    """DVC's cache of a project, read by MD5. A file is hashed once, however many generations refer to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "files" / "md5"
        self._digests: dict[str, Digests] = {}
        self._listings: dict[str, Mapping[str, str]] = {}

    def path(self, md5: str) -> Path:
        """Path of the object with that MD5, whether it exists or not."""
        return self._folder / md5[:2] / md5[2:]

    def digests(self, md5: str) -> Digests | None:
        """Digests of the content stored under that MD5; None if there is none."""
        if md5 not in self._digests and (found := _digests(self.path(md5))) is not None:
            self._digests[md5] = found
        return self._digests.get(md5)

    def read(self, md5: str) -> bytes | None:
        """Content stored under that MD5, unchecked; None if there is none."""
        return read_bytes(self.path(md5))

    def listing(self, md5: str) -> Mapping[str, str] | None:
        """MD5 of the files of a folder by path; None if the list is missing or unreadable."""
        # a missing list isn't kept: `dvc pull` may bring it while this process runs
        if md5 not in self._listings and (found := _listing(self.read(md5))) is not None:
            self._listings[md5] = found
        return self._listings.get(md5)


class Out(NamedTuple):
    """An output of a stage, or a folder of the state, as DVC records it."""

    path: str
    md5: str
    cached: bool
    """False for a small file that is in git."""


class WorkTreeFiles:
    """Files of a generation in a work tree: a workspace, or a clone at a tag."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder

    def read(self, path: str) -> bytes | None:
        """Content of a file."""
        return read_bytes(self.repository / path)

    def locate(self, folder: str, out: Out | None, name: str) -> Path | None:
        """Path of a file in a folder that DVC tracks, if it is there. `out` is ignored."""
        path = self.repository / folder / name
        return path if path.exists() else None


class CommittedFiles:
    """Files of a generation in git at one commit, and in DVC's cache."""

    def __init__(self, reader: GitReader, cache: DataCache, commit: str | None) -> None:
        self.reader, self.cache, self.commit = reader, cache, commit

    @property
    def repository(self) -> Path:
        """The clone that the reader reads."""
        return self.reader.repository

    def read(self, path: str) -> bytes | None:
        """Content of a file of the commit."""
        return self.reader.read(f"{self.commit}:{path}") if self.commit else None

    def locate(self, folder: str, out: Out | None, name: str) -> Path | None:
        """Path of a file in DVC's cache, found through the list of the files of `folder`, recorded as `out`."""
        listing = self.cache.listing(out.md5) if out else None
        md5 = listing.get(name) if listing else None
        path = self.cache.path(md5) if md5 else None
        return path if path is not None and path.exists() else None


Files = WorkTreeFiles | CommittedFiles
"""Reads the files of a generation. Missing files are None."""


def read_bytes(path: Path) -> bytes | None:
    """Content of a file; None if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def _git_ended(name: str, repository: Path) -> LineageError:
    return LineageError(f"git ended while reading {name} in {repository}; run `git fsck` there")


def _objects_dir(repository: Path) -> str:
    return str((repository / git(repository, "rev-parse", "--git-path", "objects").strip()).resolve())


CHUNK_BYTES = 1 << 20


def _digests(path: Path) -> Digests | None:
    # One pass for both: DVC names the object by MD5, the manifests name it by SHA-256.
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
        found = {each["relpath"]: each["md5"] for each in json.loads(content)}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if all(_is_inside(path) and is_md5(md5) for path, md5 in found.items()) else None


def is_md5(value: object) -> bool:
    """True for the name of an object in DVC's cache; others must not become a path."""
    return isinstance(value, str) and MD5_PATTERN.fullmatch(value) is not None


def _is_inside(path: object) -> bool:
    """True for the path of a file in a folder of DVC; `dvc checkout` would write others outside of it."""
    if not isinstance(path, str) or not path.isprintable():
        return False
    parts = PurePosixPath(path)
    return str(parts) == path and not parts.is_absolute() and ".." not in parts.parts and path != "."
