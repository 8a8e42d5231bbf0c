"""Output of git and DVC."""

import resource
from pathlib import Path

import pytest

from tests.end_to_end.project import git as run_git
from zero.errors import LineageError, StorageError
from zero.storage.layout import DVC_CACHE_DIR
from zero.storage.vcs import WITHOUT_USERS_IGNORES, configure_dvc, dvc_cache_dir, git


def test_a_damaged_file_is_shown_with_replaced_characters(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "--quiet")
    (tmp_path / "ledger.jsonl").write_bytes(b'{"generation": \xff}\n')
    run_git(tmp_path, "add", "--all")
    run_git(tmp_path, "commit", "--quiet", "-m", "damaged")
    assert git(tmp_path, "show", "HEAD:ledger.jsonl") == '{"generation": \ufffd}\n'


def test_settings_of_the_user_change_no_file_and_stop_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "core.autocrlf": "true",
        "core.excludesFile": str(tmp_path / "ignored"),
        "clone.defaultRemoteName": "upstream",
        "push.gpgSign": "true",
        "commit.gpgSign": "true",
        "user.name": "kept",
    }
    (tmp_path / "ignored").write_text("*.csv\n")
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(settings)))
    for index, (name, value) in enumerate(settings.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{index}", name)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{index}", value)
    project, clone = tmp_path / "project", tmp_path / "clone"
    project.mkdir()
    git(project, "init", "--quiet", "--initial-branch=main")
    (project / "curve.csv").write_bytes(b"step\n")
    git(project, *WITHOUT_USERS_IGNORES, "add", "--all")
    git(project, "commit", "--quiet", "-m", "curve")
    git(tmp_path, "clone", "--quiet", str(project), str(clone))
    assert (clone / "curve.csv").read_bytes() == b"step\n"
    git(clone, "push", "--quiet", "origin", "main:other")
    assert git(clone, "config", "user.name").strip() == "kept"


@pytest.mark.parametrize("name", ["josé", "a b, #%'"])
def test_the_cache_of_a_project_at_any_path(tmp_path: Path, name: str) -> None:
    home, clone = tmp_path / name, tmp_path / "clone"
    (clone / ".dvc").mkdir(parents=True)
    (clone / ".dvc/config").touch()
    configure_dvc(clone, home)
    assert dvc_cache_dir(clone) == home / DVC_CACHE_DIR


def test_a_full_disk_leaves_the_settings_of_a_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    (clone / ".dvc").mkdir(parents=True)
    (clone / ".dvc/config").touch()
    configure_dvc(clone, tmp_path / "home")
    (clone / ".dvc/config.local").chmod(0o600)  # it may have keys of a remote

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # files can be emptied, but not filled
    try:
        with pytest.raises(StorageError, match=r"cannot write .*config.local: File too large"):
            configure_dvc(clone, tmp_path / "moved", moved_from=tmp_path / "home")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert dvc_cache_dir(clone) == tmp_path / "home" / DVC_CACHE_DIR
    configure_dvc(clone, tmp_path / "moved", moved_from=tmp_path / "home")
    assert dvc_cache_dir(clone) == tmp_path / "moved" / DVC_CACHE_DIR
    assert (clone / ".dvc/config.local").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"nonsense\n", b"[core\nnonsense\n", b"dir = \xff\n", b"cache = x\n"])
def test_settings_that_cannot_be_read_are_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config.local").write_bytes(content)
    message = rf"^{tmp_path}/\.dvc/config\.local has no valid settings of DVC: .+[^.]; correct it$"
    with pytest.raises(LineageError, match=message):
        dvc_cache_dir(tmp_path)
    with pytest.raises(LineageError, match=message):
        configure_dvc(tmp_path, tmp_path)
    assert (tmp_path / ".dvc/config.local").read_bytes() == content


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_folder_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LineageError, match=rf"^cannot run `git` in {tmp_path}/{name}; install it, or check that"):
        git(tmp_path / name, "status")


def test_the_reason_of_a_refused_push_is_shown(tmp_path: Path) -> None:
    project, clone = tmp_path / "project", tmp_path / "clone"
    project.mkdir()
    git(project, "init", "--quiet", "--initial-branch=main")
    git(project, "commit", "--quiet", "--allow-empty", "-m", "first")
    git(tmp_path, "clone", "--quiet", str(project), str(clone))
    git(clone, "commit", "--quiet", "--allow-empty", "-m", "second")
    with pytest.raises(LineageError, match=r"! \[remote rejected\] main -> main \(branch is currently checked out\)$"):
        git(clone, "push", "--quiet", "origin", "main")
