"""The local directory as a store: states that other processes, or a crash, may leave and find."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lakevilla.store.backends import local as durable_files
from lakevilla.store.backends.local import LocalStore, directory_at
from lakevilla.store.base import (
    ABSENT,
    ANY,
    NEW,
    Condition,
    Failure,
    Found,
    Match,
    Missing,
    Refused,
    Stored,
    Token,
    Unchanged,
)

LOCK = ".lakevilla-lock"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path), lock_timeout_seconds=0.2)


def token_of(outcome: object) -> Token:
    assert isinstance(outcome, Stored), outcome
    return outcome.token


def test_locks_and_temporary_files_are_not_listed_as_objects(
    store: LocalStore, tmp_path: Path
) -> None:
    token = token_of(store.put("d/HEAD.json", b"1", ABSENT))
    token_of(store.put("d/HEAD.json", b"2", Match(token)))
    (tmp_path / "d" / ".lakevilla-tmp-0123").write_bytes(b"half")
    assert (tmp_path / "d" / LOCK).exists()
    listed = store.list("")
    assert isinstance(listed, list)
    assert [info.key for info in listed] == ["d/HEAD.json"]


def test_a_write_leaves_no_temporary_file(store: LocalStore, tmp_path: Path) -> None:
    token = token_of(store.put("k", b"1", ABSENT))
    store.put("k", b"2", ABSENT)
    token_of(store.put("k", b"2", Match(token)))
    store.put("k", b"3", Match(token))
    store.put("k", b"4", ANY)
    assert sorted(os.listdir(tmp_path)) == [LOCK, "k"]


def test_a_write_to_a_full_disk_leaves_no_file_and_is_reported(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, body: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable_files.os, "write", full)
    outcome = store.put("k", b"1", ABSENT)
    monkeypatch.undo()
    assert isinstance(outcome, Failure)
    assert (outcome.ambiguous, outcome.permanent) == (False, True)
    assert "space" in outcome.reason
    assert os.listdir(tmp_path) == []


def test_a_leftover_temporary_file_is_deleted_after_a_day(
    store: LocalStore, tmp_path: Path
) -> None:
    old, new = tmp_path / ".lakevilla-tmp-old", tmp_path / ".lakevilla-tmp-new"
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    day_ago = time.time() - 25 * 3600
    os.utime(old, (day_ago, day_ago))
    assert store.list("") == []
    assert (old.exists(), new.exists()) == (False, True)


def test_a_write_fails_without_a_change_while_a_stopped_process_holds_the_lock(
    store: LocalStore, tmp_path: Path
) -> None:
    token = token_of(store.put("HEAD.json", b"1", ABSENT))
    descriptor = os.open(tmp_path / LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    outcome = store.put("HEAD.json", b"2", Match(token))
    assert isinstance(outcome, Failure)
    assert (outcome.ambiguous, outcome.permanent) == (False, False)
    os.close(descriptor)
    token_of(store.put("HEAD.json", b"2", Match(token)))


def test_the_lock_of_a_killed_process_is_released(store: LocalStore, tmp_path: Path) -> None:
    token = token_of(store.put("HEAD.json", b"1", ABSENT))
    code = (
        "import fcntl, os, sys, time\n"
        f"fd = os.open({str(tmp_path / LOCK)!r}, os.O_RDWR | os.O_CREAT)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    assert isinstance(store.put("HEAD.json", b"2", Match(token)), Failure)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    token_of(store.put("HEAD.json", b"2", Match(token)))


def test_a_child_forked_under_the_lock_does_not_keep_it(store: LocalStore, tmp_path: Path) -> None:
    token = token_of(store.put("HEAD.json", b"1", ABSENT))
    with directory_at(str(tmp_path)) as there, durable_files.locked(there, LOCK, 1) as held:
        assert held
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
    try:
        token_of(store.put("HEAD.json", b"2", Match(token)))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_readers_never_see_half_of_a_replacement(store: LocalStore) -> None:
    bodies = [bytes([65 + n]) * 200_000 for n in range(8)]
    token = token_of(store.put("HEAD.json", bodies[0], ABSENT))
    torn: list[int] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = store.get("HEAD.json")
            if not isinstance(found, Found) or found.body not in bodies:
                torn.append(1)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(60):
        token = token_of(store.put("HEAD.json", bodies[n % 8], Match(token)))
    done.set()
    for reader in readers:
        reader.join()
    assert torn == []


def test_a_token_never_repeats_even_if_the_clock_stops_or_goes_back(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns()
    monkeypatch.setattr(durable_files.time, "time_ns", lambda: now)
    token = token_of(store.put("k", b"0", ABSENT))
    seen = {token}
    for n in range(1, 50):
        if n == 25:
            now -= 10**12
        token = token_of(store.put("k", str(n % 10).encode(), Match(token)))
        assert token not in seen
        seen.add(token)


def test_modification_times_advance_on_a_file_system_with_a_coarse_resolution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.utime

    def coarse(path: str, ns: tuple[int, int], dir_fd: int | None = None) -> None:
        second = ns[0] // (2 * 10**9) * 2 * 10**9
        real(path, ns=(second, second), dir_fd=dir_fd)

    file = tmp_path / "f"
    file.write_bytes(b"")
    monkeypatch.setattr(durable_files.os, "utime", coarse)
    coarse(str(file), (10**18, 10**18))
    current = os.stat(file)
    with directory_at(str(tmp_path)) as there:
        assert durable_files.date_after(there, "f", current).st_mtime_ns > current.st_mtime_ns


def test_a_file_in_the_place_of_a_directory_is_a_permanent_failure(store: LocalStore) -> None:
    token_of(store.put("file", b"1", ABSENT))
    outcome = store.put("file/below", b"2", ABSENT)
    assert isinstance(outcome, Failure)
    assert outcome.permanent
    token_of(store.put("dir/x", b"1", ABSENT))
    for condition in (ABSENT, ANY):
        outcome = store.put("dir", b"2", condition)
        assert isinstance(outcome, Failure)
        assert outcome.permanent
    found = store.get("dir/x")
    assert isinstance(found, Found)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_access_rights_is_a_permanent_failure(
    store: LocalStore, tmp_path: Path
) -> None:
    tmp_path.chmod(0o500)
    outcome = store.put("k", b"1", ABSENT)
    tmp_path.chmod(0o700)
    assert isinstance(outcome, Failure)
    assert outcome.permanent
    assert "permission" in outcome.reason


def test_an_uploaded_private_file_gets_the_access_rights_of_its_directory(
    store: LocalStore, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 10)
    source.chmod(0o600)
    (tmp_path / "t").mkdir(mode=0o755)
    (tmp_path / "t").chmod(0o755)
    token_of(store.put_file("t/x.parquet", str(source)))
    assert stat.S_IMODE(os.stat(tmp_path / "t" / "x.parquet").st_mode) == 0o644
    token_of(store.put_file("t/x.parquet", str(source)))
    assert sorted(os.listdir(tmp_path / "t")) == ["x.parquet"]


def test_empty_directories_of_transactions_are_deleted(store: LocalStore, tmp_path: Path) -> None:
    for n in range(3):
        token_of(store.put(f"_lakevilla/txns/{n}/1.json", b"x", ABSENT))
        assert store.delete(f"_lakevilla/txns/{n}/1.json") is None
    assert os.listdir(tmp_path / "_lakevilla") == []
    token_of(store.put("t/p=1/x", b"x", ABSENT))
    assert store.delete("t/p=1/x") is None
    assert (tmp_path / "t" / "p=1").is_dir()


def test_creates_succeed_although_their_directories_are_deleted_concurrently(
    store: LocalStore,
) -> None:
    failures: list[object] = []

    def churn(who: int) -> None:
        for n in range(100):
            key = f"_lakevilla/probe/shared/{who}-{n}"
            outcome = store.put(key, b"x", ABSENT)
            if not isinstance(outcome, Stored):
                failures.append(outcome)
            store.delete(key)

    threads = [threading.Thread(target=churn, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Now and then each attempt finds a directory just removed: a clear failure with nothing
    # written, which the runner repeats.
    assert all(isinstance(f, Failure) and not f.ambiguous and not f.permanent for f in failures)
    assert len(failures) < 20
    assert store.get("_lakevilla/probe/shared/0-0") == Missing()


def steps_of(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[tuple[str, str]]:
    """Record the files that are named, and the files and directories that are synced, in order."""
    steps: list[tuple[str, str]] = []
    link, rename, fsync = os.link, os.rename, os.fsync

    def named(to: str, directory: int) -> None:
        where = os.readlink(f"/proc/self/fd/{directory}")
        steps.append(("name", os.path.relpath(f"{where}/{to}", root)))

    def linked(source: str, to: str, *, dst_dir_fd: int, **options: Any) -> None:
        named(to, dst_dir_fd)
        link(source, to, dst_dir_fd=dst_dir_fd, **options)

    def renamed(source: str, to: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        named(to, dst_dir_fd)
        rename(source, to, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def synced(descriptor: int) -> None:
        path = os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), root)
        steps.append(("sync", "new" if ".lakevilla-tmp-" in path else path))
        fsync(descriptor)

    monkeypatch.setattr(durable_files.os, "link", linked)
    monkeypatch.setattr(durable_files.os, "rename", renamed)
    monkeypatch.setattr(durable_files.os, "fsync", synced)
    return steps


def test_bytes_are_synced_before_their_name_and_the_name_before_the_response(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = steps_of(monkeypatch, tmp_path)
    token = token_of(store.put("d/k", b"1", ABSENT))
    assert steps == [("sync", "."), ("sync", "new"), ("name", "d/k"), ("sync", "d")]
    for condition in (Match(token), ANY):
        steps.clear()
        token_of(store.put("d/k", b"2", condition))
        assert steps == [("sync", "new"), ("name", "d/k"), ("sync", "d")]


def test_a_put_of_a_new_key_writes_the_file_under_its_own_name(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It creates one name less, and is on the disk with its name before the response, too."""
    steps = steps_of(monkeypatch, tmp_path)
    token = token_of(store.put("d/k", b"1", NEW))
    assert steps[0] == ("sync", ".")
    assert sorted(steps[1:]) == [("sync", "d"), ("sync", "d/k")]
    assert store.get("d/k", token) == Unchanged()
    assert os.listdir(tmp_path / "d") == ["k"]


def test_a_partial_file_of_an_earlier_attempt_at_a_new_key_is_replaced_by_another_file(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never overwritten in place: a client may have read it, if that attempt was not the
    last.
    """
    (tmp_path / "k").write_bytes(b"half of it")
    before = (tmp_path / "k").open("rb")
    token_of(store.put("k", b"whole", NEW))
    assert (tmp_path / "k").read_bytes() == b"whole"
    assert before.read() == b"half of it"
    before.close()


def test_a_barrier_that_fails_while_a_read_makes_another_is_made_by_the_next_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path), lock_timeout_seconds=0.2, durable=True)
    sync = durable_files.sync_directory
    steps: list[str] = []

    def broken(directory: int) -> None:
        steps.append("fails")
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def made_beside(directory: int) -> None:
        """Sync the directory, and have another write fail before the reader goes on."""
        sync(directory)
        steps.append("made")
        monkeypatch.setattr(durable_files, "sync_directory", broken)
        assert isinstance(store.put("d/second", b"2", ANY), Failure)

    def counted(directory: int) -> None:
        steps.append("made")
        sync(directory)

    token_of(store.put("d/one", b"0", ANY))
    monkeypatch.setattr(durable_files, "sync_directory", broken)
    assert isinstance(store.put("d/first", b"1", ANY), Failure)
    monkeypatch.setattr(durable_files, "sync_directory", made_beside)
    assert isinstance(store.get("d/first"), Found)
    monkeypatch.setattr(durable_files, "sync_directory", counted)
    for _ in range(2):
        assert isinstance(store.get("d/second"), Found)
    assert steps == ["fails", "made", "fails", "made"]


@pytest.mark.parametrize("broken", ["write", "fsync"])
def test_a_new_file_that_could_not_be_written_is_deleted(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def full(descriptor: int, *body: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable_files.os, broken, full)
    outcome = store.put("k", b"1", NEW)
    monkeypatch.undo()
    assert isinstance(outcome, Failure)
    assert (outcome.ambiguous, outcome.permanent) == (False, True)
    assert os.listdir(tmp_path) == []


def test_an_attempt_that_could_not_open_its_file_leaves_the_existing_one(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The existing file may be complete: an earlier attempt may have stored it without a
    response.
    """
    (tmp_path / "k").write_bytes(b"whole")

    def exhausted(*arguments: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(durable_files.os, "open", exhausted)
        outcome = store.put("k", b"whole", NEW)
    assert isinstance(outcome, Failure)
    assert not outcome.permanent
    assert (tmp_path / "k").read_bytes() == b"whole"


def test_writes_without_sync_create_names_in_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path), durable=False)
    steps = steps_of(monkeypatch, tmp_path)
    token = token_of(store.put("d/k", b"1", ABSENT))
    token_of(store.put("d/k", b"2", Match(token)))
    token_of(store.put("d/k", b"3", ANY))
    source = tmp_path / "source"
    source.write_bytes(b"4")
    token_of(store.put_file("d/f", str(source)))
    assert {what for what, _ in steps} == {"name"}
    assert [name for _, name in steps if "tmp" not in name] == ["d/k", "d/k", "d/k", "d/f"]


# ------------------------------------------------------- links, and what is no file


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A directory outside the store, to which a link in the store leads."""
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "a.parquet").write_bytes(b"precious")
    return beside


@pytest.fixture
def linked(tmp_path: Path, beside: Path) -> LocalStore:
    root = tmp_path / "root"
    (root / "t").mkdir(parents=True)
    (root / "t" / "own.parquet").write_bytes(b"1")
    os.symlink(beside, root / "t" / "x")
    return LocalStore(str(root), lock_timeout_seconds=0.2)


def names_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("prefix", ["", "t"])
def test_a_link_to_a_directory_is_not_listed(linked: LocalStore, prefix: str) -> None:
    listed = linked.list(prefix)
    assert isinstance(listed, list)
    assert [info.key for info in listed] == ["t/own.parquet"]
    assert linked.list_names("t") == ("own.parquet",)


def test_a_leftover_temporary_file_behind_a_link_is_not_deleted(
    linked: LocalStore, beside: Path
) -> None:
    old = beside / ".lakevilla-tmp-old"
    old.write_bytes(b"half")
    os.utime(old, (0, 0))
    linked.list("")
    assert old.exists()


@pytest.mark.parametrize("condition", [ABSENT, ANY, NEW, Match(Token('"1-1-1"'))])
@pytest.mark.parametrize("key", ["t/x/new", "t/x/a/b/new"])
def test_a_write_through_a_linked_directory_is_refused(
    linked: LocalStore, beside: Path, condition: Condition, key: str
) -> None:
    outcome = linked.put(key, b"1", condition)
    assert isinstance(outcome, Refused if isinstance(condition, Match) else Failure)
    assert names_in(beside) == {"a.parquet": b"precious"}


def test_replacing_uploading_and_deleting_through_a_linked_directory_change_nothing(
    linked: LocalStore, tmp_path: Path, beside: Path
) -> None:
    found = linked.get("t/x/a.parquet")
    assert isinstance(found, Found)
    (tmp_path / "source").write_bytes(b"2")
    for outcome in (
        linked.put("t/x/a.parquet", b"2", Match(found.token)),
        linked.put_file("t/x/b.parquet", str(tmp_path / "source")),
        linked.copy_object("t/own.parquet", "t/x/b.parquet"),
        linked.delete("t/x/a.parquet"),
    ):
        assert isinstance(outcome, Failure)
        assert outcome.permanent
        assert "link" in outcome.reason
    assert names_in(beside) == {"a.parquet": b"precious"}


def test_a_directory_replaced_by_a_link_before_a_deletion_keeps_its_files(
    linked: LocalStore, tmp_path: Path, beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was checked before, the deletion uses the directory that the process has open."""
    inside, away = tmp_path / "root" / "t", tmp_path / "away"
    (inside / "a.parquet").write_bytes(b"1")
    unlink = os.unlink

    def swapped(name: str, *, dir_fd: int) -> None:
        inside.rename(away)
        os.symlink(beside, inside)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", swapped)
    assert linked.delete("t/a.parquet") is None
    monkeypatch.undo()
    assert names_in(beside) == {"a.parquet": b"precious"}
    assert not (away / "a.parquet").exists()


def test_a_link_to_a_file_is_read_and_the_link_itself_is_replaced_and_deleted(
    store: LocalStore, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"precious")
    (tmp_path / "d").mkdir()
    os.symlink(tmp_path / "file", tmp_path / "d" / "k")
    assert isinstance(store.get("d/k"), Found)
    token_of(store.put("d/k", b"2", ANY))
    os.unlink(tmp_path / "d" / "k")
    os.symlink(tmp_path / "file", tmp_path / "d" / "k")
    assert store.delete("d/k") is None
    assert (tmp_path / "file").read_bytes() == b"precious"
    assert os.listdir(tmp_path / "d") == []


def test_a_root_below_a_link_works_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "mnt" / "data").mkdir(parents=True)
    os.symlink(tmp_path / "mnt", tmp_path / "link")
    store = LocalStore(str(tmp_path / "link" / "data" / "lake"))
    token = token_of(store.put("d/k", b"1", ABSENT))
    token_of(store.put("d/k", b"2", Match(token)))
    assert (tmp_path / "mnt" / "data" / "lake" / "d" / "k").read_bytes() == b"2"
    assert store.delete("d/k") is None


def test_a_lock_file_that_is_a_link_is_not_opened(store: LocalStore, tmp_path: Path) -> None:
    token = token_of(store.put("HEAD.json", b"1", ABSENT))
    os.symlink(tmp_path / "made", tmp_path / LOCK)
    outcome = store.put("HEAD.json", b"2", Match(token))
    assert isinstance(outcome, Failure)
    assert outcome.permanent
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", ["k", LOCK])
def test_a_named_pipe_is_refused_at_once(store: LocalStore, tmp_path: Path, name: str) -> None:
    token = Token('"0-0-0"')
    if name == LOCK:
        token = token_of(store.put("k", b"1", ABSENT))
    os.mkfifo(tmp_path / name)
    outcomes: list[object] = [store.put("k", b"2", Match(token))]
    if name == "k":
        outcomes = [store.get("k"), store.head("k")]
    for outcome in outcomes:
        assert isinstance(outcome, Failure)
        assert outcome.permanent
        assert "no regular file" in outcome.reason


def test_an_uploaded_file_gets_no_more_access_rights_than_the_umask_allows(
    store: LocalStore, tmp_path: Path
) -> None:
    (tmp_path / "source").write_bytes(b"x")
    (tmp_path / "t").mkdir()
    (tmp_path / "t").chmod(0o777)
    before = os.umask(0o027)
    try:
        token_of(store.put_file("t/x", str(tmp_path / "source")))
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "t" / "x").st_mode) == 0o640


def stored_by_link(store: LocalStore, tmp_path: Path) -> os.stat_result:
    (tmp_path / "source").write_bytes(b"x")
    (tmp_path / "source").chmod(0o600)
    before = os.umask(0o007)
    try:
        token_of(store.put_file("t/x", str(tmp_path / "source")))
    finally:
        os.umask(before)
    return os.stat(tmp_path / "t" / "x")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory to any group")
def test_an_uploaded_file_belongs_to_the_group_that_shares_the_directory(
    store: LocalStore, tmp_path: Path
) -> None:
    (tmp_path / "t").mkdir()
    os.chown(tmp_path / "t", -1, 54321)
    (tmp_path / "t").chmod(0o2770)
    status = stored_by_link(store, tmp_path)
    assert (status.st_gid, stat.S_IMODE(status.st_mode)) == (54321, 0o660)


def test_an_uploaded_file_has_the_directorys_list_of_access_rights(
    store: LocalStore, tmp_path: Path
) -> None:
    (tmp_path / "t").mkdir()
    nobody = 0xFFFFFFFF
    #: The owner, the user 54321, the group, the mask, all others: the first two may write.
    entries = [(1, 7, nobody), (2, 6, 54321), (4, 0, nobody), (16, 7, nobody), (32, 0, nobody)]
    listed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(tmp_path / "t", "system.posix_acl_default", listed)
    except (AttributeError, OSError):
        pytest.skip("the file system of temporary files has no lists of access rights")
    stored_by_link(store, tmp_path)
    found = os.getxattr(tmp_path / "t" / "x", "system.posix_acl_access")
    assert struct.pack("<HHI", 2, 6, 54321) in found
