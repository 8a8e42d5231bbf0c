"""Every change of a lineage's data (shards, windows, networks) is detected and named."""

import json
import re

import pytest
import yaml

from tests.audit.record import Record, cells, flipped, named
from tests.end_to_end.project import zero
from zero.audit import Mark
from zero.storage.files import canonical_json
from zero.storage.manifests import Window

CORRUPTED = (
    (1, "data/games", "shard-0001.parquet"),
    (1, "data/match", "shard-0000.parquet"),
    (2, "models/challenger", "weights.safetensors"),
    (1, "models/challenger", "optimizer.safetensors"),
)


def test_corrupt_objects_in_the_cache(record: Record) -> None:
    paths = [record.cached(*each) for each in CORRUPTED]
    for path in paths:
        record.overwrite(path, flipped(path))
    found = record.mismatches()
    for (number, out, name), path in zip(CORRUPTED, paths, strict=True):
        finding = named(found, "data", number, f"{out}/{name} ({path})", "MD5 against dvc.lock")
        assert finding.expected == f"{path.parent.name}{path.name}"
        named(found, "data", number, f"{out}/{name} ({path})", "SHA-256 against its manifest")
    assert all(finding.check in ("data", "manifests") for finding in found)


def test_weights_replaced_in_the_list_of_files_and_an_entry_of_a_window_changed(record: Record) -> None:
    listing = record.cached(2, "models/challenger")
    old, new = (record.cached(number, "models/challenger", "weights.safetensors") for number in (2, 1))
    text = listing.read_text().replace(old.parent.name + old.name, new.parent.name + new.name)
    record.overwrite(listing, text.encode())
    path = record.cached(2, "data/window", "manifest.json")
    window = Window.model_validate_json(path.read_bytes())
    first = window.shards[0].model_copy(update={"skip_games": window.shards[0].skip_games + 1})
    record.overwrite(path, canonical_json(window.model_copy(update={"shards": (first, *window.shards[1:])})))
    found = record.mismatches()
    named(found, "data", 2, f"models/challenger ({listing})", "MD5 against dvc.lock")
    named(found, "data", 2, "models/challenger/weights.safetensors", "SHA-256 against its manifest")
    named(found, "data", 2, "data/window/manifest.json", "MD5 against dvc.lock")
    named(found, "manifests", 2, "gen-0001-shard-0001.parquet: entry", "skip_games=1,", "skip_games=0;")
    named(found, "manifests", 2, "num_games of its shards", "found 35, expected 36")
    named(found, "attestation", 2, "digest of data/window/manifest.json")


def test_files_of_dvc_that_cannot_be_read(record: Record) -> None:
    files = [f"state/{name}.dvc" for name in ("champion", "trainee", "replay")]
    record.rewrite_newest(dict.fromkeys(files, b"x\n"))
    found = record.mismatches()
    for file in files:
        named(found, "data", 2, f"{file}: outputs: found others, or none that can be read")


def test_files_of_dvc_with_other_data(record: Record) -> None:
    """DVC would take other data than those of the MD5: from a list in the file, or from the cache of an old version."""
    files = [f"state/{name}.dvc" for name in ("champion", "trainee", "replay")]
    contents = {file: record.read(2, file) for file in files}
    contents[files[0]] = contents[files[0]].replace(b"  hash: md5\n", b"")
    contents[files[1]] = contents[files[1]].rstrip() + b"\n  files: []\n"
    contents[files[2]] = re.sub(rb"md5: .*", b"md5: ///dev/zero", contents[files[2]], count=1)
    record.rewrite_newest(contents)
    found = record.mismatches()
    for file in files:
        named(found, "data", 2, f"{file}: outputs")


@pytest.mark.parametrize(
    "entry", [{"relpath": "../../zero/__init__.py"}, {"relpath": "/etc/a"}, {"relpath": "a\x1b"}, {"md5": "../a"}]
)
def test_files_outside_of_their_folder(record: Record, entry: dict[str, str]) -> None:
    """`dvc checkout` would write them."""
    tree = yaml.safe_load(record.read(2, "state/champion.dvc"))
    listing = json.loads(record.object(tree["outs"][0]["md5"]).read_bytes())
    listing.append(listing[0] | {"relpath": "more"} | entry)
    tree["outs"][0]["md5"] = record.put(json.dumps(listing).encode(), ".dir")
    record.rewrite_newest({"state/champion.dvc": yaml.safe_dump(tree).encode()})
    named(record.mismatches(), "data", 2, "state/champion (", "list of its files", "none that can be read")


def test_files_of_dvc_with_other_folders(record: Record) -> None:
    """`dvc checkout` writes all outputs of such a file, wherever they are."""
    files = [f"state/{name}.dvc" for name in ("champion", "trainee", "replay")]
    contents = {file: record.read(2, file) for file in files}
    contents[files[0]] += contents[files[0]].replace(b"outs:\n", b"").replace(b"champion", b"../other")
    contents[files[1]] = contents[files[1]].replace(b"path: trainee", b"path: replay")
    contents[files[2]] += b"wdir: ..\n"
    record.rewrite_newest(contents)
    found = record.mismatches()
    for file in files:
        name = file.removeprefix("state/").removesuffix(".dvc")
        named(found, "data", 2, f"{file}: outputs", f"expected {name} alone, with its MD5")


def test_manifest_of_another_version(record: Record) -> None:
    path = record.cached(1, "data/games", "manifest.json")
    record.overwrite(path, canonical_json(json.loads(path.read_bytes()) | {"version": 2}))
    named(record.mismatches(), "data", 1, "data/games/manifest.json", "found none that can be read, expected a GameSet")


def test_folders_without_a_manifest(record: Record) -> None:
    """The list of files has the MD5 in dvc.lock, but names no manifest, or cannot be read."""
    contents = {"replay": b"[]", "trainee": b"x"}
    files = {
        f"state/{name}.dvc": f"outs:\n- md5: {record.put(content, '.dir')}\n  hash: md5\n  path: {name}\n".encode()
        for name, content in contents.items()
    }
    record.rewrite_newest(files)
    found = record.mismatches()
    named(found, "data", 2, "state/replay (", "no manifest.json")
    named(found, "data", 2, "state/trainee (", "none that can be read", "copy the object from a backup, or ")


def test_numbers_of_a_game_set_changed(record: Record) -> None:
    path = record.cached(1, "data/games", "manifest.json")
    text = path.read_text().replace('"num_games": 12', '"num_games": 11', 1)
    record.overwrite(path, text.encode())
    found = record.mismatches()
    named(found, "manifests", 1, "data/games/shard-0000.parquet: games against the manifest", "found 12, expected 11")
    named(found, "manifests", 1, "num_games of its shards")


def test_a_shard_that_is_listed_twice(record: Record) -> None:
    path = record.cached(1, "data/match", "manifest.json")
    tree = json.loads(path.read_bytes())
    tree["shards"][1]["key"] = tree["shards"][0]["key"]
    record.overwrite(path, canonical_json(tree))
    named(record.mismatches(), "manifests", 1, "keys that repeat", tree["shards"][0]["key"][:12])


def test_missing_object_is_not_a_mismatch(record: Record) -> None:
    record.cached(1, "data/games", "shard-0000.parquet").unlink()
    found = record.audit()
    assert not found.has_mismatch and found.incomplete
    assert cells(list(found.findings)) == {("data", 1), ("data", 2)}  # a later window holds it as well
    finding = found.findings[0]
    assert finding.mark == Mark.MISSING and "1 of 3 files (shard-0000.parquet)" in finding.line()
    assert "dvc pull" in finding.remedy
    assert zero(record.home, "audit", "tiny", check=False).returncode == 3


def test_missing_list_of_files_is_not_a_mismatch(record: Record) -> None:
    record.cached(2, "models/challenger").unlink()
    found = record.audit()
    assert not found.has_mismatch and cells(list(found.findings)) == {("data", 2)}
