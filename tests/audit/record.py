"""A recorded lineage with the tools of an attacker who tries to change it without detection."""

import hashlib
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.end_to_end.project import environment_of, git
from zero.audit import Audit, Finding, Mark, audit
from zero.storage.files import canonical_json, sha256_bytes
from zero.storage.layout import LEDGER_FILE

LINEAGE = "tiny"
BRANCH = f"lineage/{LINEAGE}"


def tag_of(number: int, lineage: str = LINEAGE) -> str:
    return f"{lineage}/gen-{number:04d}"


class Record:
    """A lineage of a project, mostly `tiny` of generations 0 to 2."""

    def __init__(self, home: Path, lineage: str = LINEAGE) -> None:
        self.home, self.lineage = home, lineage
        self.workspace = home / ".zero/workspaces" / lineage

    def audit(self, target: str = LINEAGE, uri: str = "", own_key: bytes | None = None) -> Audit:
        return audit(self.home, target, uri, own_key)

    def mismatches(self, uri: str = "", own_key: bytes | None = None) -> list[Finding]:
        """The mismatches of an audit in which nothing is missing."""
        found = self.audit(self.lineage, uri, own_key)
        assert not found.incomplete, [finding.line() for finding in found.findings]
        return [finding for finding in found.findings if finding.mark == Mark.MISMATCH]

    def commit(self, number: int) -> str:
        return git(self.workspace, "rev-parse", f"{tag_of(number, self.lineage)}^{{commit}}").strip()

    def read(self, number: int, path: str) -> bytes:
        return git(self.workspace, "show", f"{tag_of(number, self.lineage)}:{path}").encode()

    def lines(self) -> list[dict[str, Any]]:
        """The entries of the newest ledger."""
        return [json.loads(line) for line in self.read(2, LEDGER_FILE).splitlines()]

    def rewritten(self, commit: str, files: Mapping[str, bytes | None], parent: str) -> str:
        """A copy of a commit with another parent and other files; a file that is None is removed."""
        self._git("read-tree", commit)
        for path, content in files.items():
            if content is None:
                self._git("update-index", "--force-remove", path)
                continue
            blob = self._git("hash-object", "-w", "--stdin", content=content)
            self._git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
        tree = self._git("write-tree")
        return self._git("commit-tree", tree, "-p", parent, "-m", "as if nothing had happened")

    def publish(self, head: str, **tags: str) -> None:
        """Sets the branch, and tags by generation (`gen_0002=commit`), in workspace and project."""
        refs = {f"refs/heads/lineage/{self.lineage}": head}
        refs |= {f"refs/tags/{self.lineage}/{name.replace('_', '-')}": commit for name, commit in tags.items()}
        for ref, commit in refs.items():
            git(self.workspace, "update-ref", ref, commit)
            git(self.home, "fetch", "--quiet", str(self.workspace), f"+{ref}:{ref}")
        (self.workspace / LEDGER_FILE).write_bytes(git(self.workspace, "show", f"{head}:{LEDGER_FILE}").encode())

    def rewrite_newest(self, files: Mapping[str, bytes | None], number: int = 2) -> None:
        """Rewrites the commit of the newest generation with other files, and moves branch and tag in both clones."""
        made = self.rewritten(self.commit(number), files, f"{self.commit(number)}^")
        self.publish(made, **{f"gen_{number:04d}": made})

    def edit_newest(self, folder: str, edit: Callable[[Any], None], number: int = 2) -> None:
        """Edits the manifest of a folder of the newest generation's state."""
        tree = yaml.safe_load(self.read(number, f"{folder}.dvc"))
        listing = json.loads(self.object(tree["outs"][0]["md5"]).read_bytes())
        entry = next(each for each in listing if each["relpath"] == "manifest.json")
        manifest = json.loads(self.object(entry["md5"]).read_bytes())
        edit(manifest)
        entry["md5"] = self.put(canonical_json(manifest))
        tree["outs"][0]["md5"] = self.put(json.dumps(listing).encode(), ".dir")
        self.rewrite_newest({f"{folder}.dvc": yaml.safe_dump(tree).encode()}, number)

    def commit_ledger(self, lines: list[dict[str, Any]] | bytes) -> None:
        """Commits another ledger on top."""
        text = lines if isinstance(lines, bytes) else b"".join(map(line_of, lines))
        self.publish(self.rewritten(self.commit(2), {LEDGER_FILE: text}, self.commit(2)))

    def lock(self, number: int) -> Any:
        return yaml.safe_load(self.read(number, "dvc.lock"))

    def cached(self, number: int, out: str, name: str = "") -> Path:
        """Path in DVC's cache of a generation's output: one of its files, or the list of its files."""
        outs = [each for stage in self.lock(number)["stages"].values() for each in stage["outs"]]
        listing = self.object(next(each["md5"] for each in outs if each["path"] == out))
        if not name:
            return listing
        return self.object(next(e["md5"] for e in json.loads(listing.read_bytes()) if e["relpath"] == name))

    def overwrite(self, path: Path, content: bytes) -> None:
        """Overwrites a file of the cache, which is read-only and may be a hard link of a workspace's file."""
        path.chmod(0o644)
        path.write_bytes(content)

    def put(self, content: bytes, suffix: str = "") -> str:
        """Adds content to the cache and returns its MD5."""
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest() + suffix
        self.object(md5).parent.mkdir(exist_ok=True)
        self.object(md5).write_bytes(content)
        return md5

    def object(self, md5: str) -> Path:
        return self.home / ".zero/dvc-cache/files/md5" / md5[:2] / md5[2:]

    def _git(self, *arguments: str, content: bytes | None = None) -> str:
        """Output of a git command that uses another index than the workspace's."""
        identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        done = subprocess.run(
            ["git", *identity, *arguments],
            cwd=self.workspace,
            env=environment_of(GIT_INDEX_FILE=str(self.workspace / ".git/other-index")),
            input=content,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().strip()


def line_of(entry: dict[str, Any]) -> bytes:
    return (json.dumps(entry, sort_keys=True) + "\n").encode()


def chained(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries with matching `previous` digests, as a forger who knows the chain would write them."""
    made: list[dict[str, Any]] = []
    for entry in entries:
        made.append(entry | ({"previous": sha256_bytes(line_of(made[-1]))} if made else {}))
    return made


def flipped(path: Path) -> bytes:
    """The content of a file with one bit changed."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    return bytes(data)


def named(findings: list[Finding], check: str, number: int, *words: str) -> Finding:
    """The finding of a check and generation whose line contains the texts."""
    fits = [
        each
        for each in findings
        if (each.check, each.tag) == (check, tag_of(number)) and all(word in each.line() for word in words)
    ]
    assert fits, "not found, but:\n" + "\n".join(each.line() for each in findings)
    return fits[0]


def cells(findings: list[Finding]) -> set[tuple[str, int]]:
    """Check and generation of every finding."""
    return {(each.check.value, int(each.tag[-4:])) for each in findings}
