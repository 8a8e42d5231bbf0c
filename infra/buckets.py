"""Backs up the buckets of the S3 store to folders, and restores them. Each copy is read again and compared.

    python -m infra.buckets make zero-store zero-mlflow    makes buckets that are missing
    python -m infra.buckets fetch s3://zero-store FOLDER    copies all objects to an empty folder
    python -m infra.buckets check FOLDER                    fails if a listed object is missing (does not hash them)
    python -m infra.buckets put FOLDER s3://zero-store      copies the objects back; the bucket must be empty
    python -m infra.buckets empty s3://zero-store ...       fails unless they are empty

`SHA256SUMS` in the folder lists every object in the format of `sha256sum --check`. AWS_ENDPOINT_URL_S3 gives the
address of the store, AWS_SHARED_CREDENTIALS_FILE the credentials. A path instead of an s3:// URL is a folder.
"""

import argparse
import hashlib
import re
import sys
import unicodedata
from pathlib import Path
from typing import Any

import fsspec

SUMS = "SHA256SUMS"
SUMS_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
UNFIT = {"Cc", "Cs", "Zl", "Zp"}
"""Unicode categories that a line cannot hold: control characters, surrogates, line and paragraph separators."""
CHUNK_BYTES = 1 << 20


class BucketError(Exception):
    """A failure; the message gives the cause and the remedy."""


def make(names: list[str]) -> None:
    """Makes the buckets that are missing."""
    files = fsspec.filesystem("s3")
    for name in names:
        if not files.exists(name):
            files.mkdir(name)
        print(f"s3://{name} is there")


def fetch(url: str, folder: Path) -> int:
    """Copies every object of a bucket to a folder, under its own name; returns how many there are.

    Raises:
      BucketError: no such bucket, a name that would leave the folder, or a copy that differs from what was read.
    """
    files, root = fsspec.core.url_to_fs(url)
    if not files.exists(root):
        raise BucketError(f"there is no {url}; make it with `python -m infra.buckets make`, or leave it out")
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for path in sorted(files.find(root)):
        name = inside(str(path).removeprefix(str(root)).lstrip("/"))
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with files.open(path, "rb") as source, target.open("wb") as copy:
            wanted = digest_of(source, copy)
        with target.open("rb") as copy:
            if digest_of(copy) != wanted:
                raise BucketError(f"{target} is not what was read from {url}; check the disk and fetch again")
        lines.append(f"{wanted}  {name}\n")
    (folder / SUMS).write_text("".join(lines))
    return len(lines)


def put(folder: Path, url: str) -> int:
    """Copies every object of a fetched folder to an empty bucket; returns how many there are.

    Raises:
      BucketError: the bucket is not empty, the folder is incomplete, or an object is not what its sum says, here or
        there.
    """
    require_empty([url])
    files, root = fsspec.core.url_to_fs(url)
    sums = read_sums(folder)
    for wanted, name in sums:
        path = f"{root}/{name}"
        if files.protocol in ("file", ("file", "local")):
            files.makedirs(files._parent(path), exist_ok=True)
        with (folder / name).open("rb") as copy, files.open(path, "wb") as target:
            if digest_of(copy, target) != wanted:
                raise BucketError(f"{folder / name} is not what {SUMS} says; take another backup")
        with files.open(path, "rb") as there:
            if digest_of(there) != wanted:
                raise BucketError(f"{url} did not keep {name}; empty the bucket and put it again")
    return len(sums)


def read_sums(folder: Path) -> list[tuple[str, str]]:
    """SHA-256 (hex) and name of every object of a fetched folder.

    Raises:
      BucketError: a line is not a digest and a name, or its object is missing.
    """
    sums = []
    for line in (folder / SUMS).read_text().splitlines():
        if not (found := SUMS_LINE.fullmatch(line)):
            raise BucketError(
                f"{folder / SUMS} has the line {line!r}, which is not a digest and a name; take another backup"
            )
        sums.append((found[1], inside(found[2])))
        if not (folder / found[2]).is_file():
            raise BucketError(f"{folder} has no {found[2]}, which its {SUMS} names; take another backup")
    return sums


def require_empty(urls: list[str]) -> None:
    """Checks that the buckets are empty.

    Raises:
      BucketError: a bucket is not empty.
    """
    for url in urls:
        files, root = fsspec.core.url_to_fs(url)
        if files.exists(root) and files.find(root):
            raise BucketError(f"{url} is not empty; restore into an empty one")


def inside(name: str) -> str:
    """Checks that the name of an object can be a path in the folder, and returns it.

    Raises:
      BucketError: it is not a relative path inside the folder, or has a character that SHA256SUMS cannot hold.
    """
    parts = name.split("/")
    unfit = "\\" in name or UNFIT & set(map(unicodedata.category, name))
    if name == SUMS or not all(parts) or {".", ".."} & set(parts) or unfit:
        raise BucketError(f"the object {name!r} has no name that a file can have; remove it from the bucket")
    return name


def digest_of(source: Any, copy: Any = None) -> str:
    """SHA-256 (hex) of an open file; what is read is written to `copy`, where there is one."""
    digest = hashlib.sha256()
    while chunk := source.read(CHUNK_BYTES):
        digest.update(chunk)
        if copy is not None:
            copy.write(chunk)
    return digest.hexdigest()


def main(arguments: list[str]) -> int:
    """Runs a command; an error is one message and exit status 1."""
    parser = argparse.ArgumentParser(prog="infra.buckets", description="Buckets of the S3 store as folders.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make").add_argument("names", nargs="+")
    commands.add_parser("empty").add_argument("urls", nargs="*")
    for name, words in (("check", ("folder",)), ("fetch", ("url", "folder")), ("put", ("folder", "url"))):
        command = commands.add_parser(name)
        for word in words:
            command.add_argument(word, type=Path if word == "folder" else str)
    options = parser.parse_args(arguments)
    try:
        match options.command:
            case "make":
                make(options.names)
            case "empty":
                require_empty(options.urls)
            case "check":
                print(f"{options.folder}: {len(read_sums(options.folder))} objects")
            case "fetch":
                print(f"{options.url}: {fetch(options.url, options.folder)} objects")
            case "put":
                print(f"{options.url}: {put(options.folder, options.url)} objects")
    except Exception as error:  # each of fsspec's file systems fails in its own way
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
