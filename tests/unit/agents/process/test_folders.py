"""Where sessions have their folders, and what lies in them."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import Part
from dragoman.agents.process import folders
from dragoman.agents.process.folders import SessionFolders, changed_files, file_part, save_files, scan

LONG_AGO = 1_000_000_000


def file(name: str | None, raw: bytes = b"x") -> Part:
    return Part(raw=raw, filename=name)


def age(path: Path) -> None:
    """Let nothing have happened to a file or folder, or in it, for long."""
    for each in (*path.rglob("*"), path):
        os.utime(each, (LONG_AGO, LONG_AGO), follow_symlinks=False)


# -- folders of sessions -----------------------------------------------------------------------------------------------


def test_a_session_has_one_folder_that_nobody_else_can_read(tmp_path: Path) -> None:
    home = SessionFolders(tmp_path / "sessions" / "fox")
    folder = home.folder_of("s-1")
    assert folder == home.folder_of("s-1") == tmp_path / "sessions" / "fox" / "s-1"
    assert home.folder_of("s-2") != folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_folders_without_a_home_are_gone_at_the_end_and_come_again() -> None:
    home = SessionFolders(None)
    folder = home.folder_of("s-1")
    (folder / "a.txt").touch()
    assert stat.S_IMODE(home.root.stat().st_mode) == 0o700
    home.close()
    assert not folder.parent.exists()
    again = home.folder_of("s-1")
    assert again.is_dir()
    home.close()
    home.close()


def test_folders_with_a_home_stay(tmp_path: Path) -> None:
    home = SessionFolders(tmp_path)
    folder = home.folder_of("s-1")
    home.close()
    assert folder.is_dir()


def test_a_home_that_cannot_be_created_raises(tmp_path: Path) -> None:
    (tmp_path / "sessions").touch()
    with pytest.raises(OSError, match="sessions"):
        SessionFolders(tmp_path / "sessions").folder_of("s-1")


def test_only_an_empty_folder_is_tidied_away(tmp_path: Path) -> None:
    home = SessionFolders(tmp_path)
    empty, used = home.folder_of("empty"), home.folder_of("used")
    (used / ".memory").touch()
    read = home.folder_of("read")
    save_files(read, [file("a.txt")])
    (read / "inbox" / "a.txt").unlink()
    for folder in (empty, used, empty, read):
        home.remove_if_empty(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["used"]


def test_folders_of_sessions_in_which_nothing_happens_are_removed(tmp_path: Path) -> None:
    home = SessionFolders(tmp_path)
    old, new, below, again = (str(uuid4()) for _ in range(4))
    for name in (old, new, below, again, "notes", old.replace("-", ""), old.upper() + "A"):
        folder = home.folder_of(name) / "sub"
        folder.mkdir()
        (folder / "a.txt").touch()
    (tmp_path / "notes.txt").touch()
    link = str(uuid4())
    (tmp_path / link).symlink_to(tmp_path / new)
    for path in tmp_path.iterdir():
        if path.name != new:
            age(path)
    (tmp_path / below / "sub" / "a.txt").write_text("more")
    home.folder_of(again)
    assert home.sweep(60) == 1
    assert {path.name for path in tmp_path.iterdir()} == {
        *(new, below, again),
        *("notes", "notes.txt", link, old.replace("-", ""), old.upper() + "A"),  # whoever put these there removes them
    }


def test_folders_may_be_kept_for_ever(tmp_path: Path) -> None:
    home, session = SessionFolders(tmp_path), str(uuid4())
    age(home.folder_of(session))
    assert home.sweep(0) == 0
    assert SessionFolders(None).sweep(1) == 0
    assert SessionFolders(tmp_path / "not-there-yet").sweep(1) == 0
    assert (tmp_path / session).is_dir()


# -- what a program leaves ---------------------------------------------------------------------------------------------


def test_files_are_seen_by_their_path_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("12345")
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "sub" / "deep" / "b.txt").touch()
    (tmp_path / ".hidden").touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "c.txt").touch()
    (tmp_path / "link.txt").symlink_to("a.txt")
    (tmp_path / "up").symlink_to("..")
    (tmp_path / "round").symlink_to(".")
    os.mkfifo(tmp_path / "pipe")
    seen = scan(tmp_path)
    assert list(seen) == ["a.txt", "sub/deep/b.txt"]
    assert seen["a.txt"] == ((tmp_path / "a.txt").stat().st_mtime_ns, 5)


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert scan(tmp_path / "gone") == {}


def test_a_file_that_vanishes_while_it_is_looked_at_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).touch()
    listed = Path.iterdir

    def vanishing(folder: Path) -> list[Path]:
        paths = list(listed(folder))
        (tmp_path / "b.txt").unlink()
        return paths

    monkeypatch.setattr(Path, "iterdir", vanishing)
    assert list(scan(tmp_path)) == ["a.txt", "c.txt"]


def test_only_so_many_files_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_MAX_FILES", 5)
    (tmp_path / "sub").mkdir()
    for number in range(9):
        (tmp_path / f"{number}.txt").touch()
        (tmp_path / "sub" / f"{number}.txt").touch()
    assert len(scan(tmp_path)) == 5


def test_new_and_modified_files_have_changed(tmp_path: Path) -> None:
    for name in ("same.txt", "longer.txt", "touched.txt", "gone.txt"):
        (tmp_path / name).write_text("x")
    age(tmp_path)
    before = scan(tmp_path)
    (tmp_path / "longer.txt").write_text("xx")
    os.utime(tmp_path / "longer.txt", (LONG_AGO, LONG_AGO))
    os.utime(tmp_path / "touched.txt", (LONG_AGO, LONG_AGO + 1))
    (tmp_path / "gone.txt").unlink()
    (tmp_path / "new.txt").touch()
    names, now = changed_files(tmp_path, before, 0)
    assert names == ["longer.txt", "new.txt", "touched.txt"]
    assert changed_files(tmp_path, now, 0) == ([], now)


def test_files_are_results_as_far_as_they_are_not_too_large_together(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, size in (("a", 6), ("b", 5), ("c", 4)):
        (tmp_path / name).write_bytes(b"x" * size)
    with caplog.at_level(logging.WARNING, "dragoman.process"):
        names, now = changed_files(tmp_path, {}, 10)
    assert names == ["a", "c"]
    assert [record.message for record in caplog.records] == [
        "b is not taken as a result: the files of this task are larger than 10 bytes"
    ]
    assert set(now) == {"a", "b", "c"}


def test_a_file_is_a_part_under_its_path(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.json").write_bytes(b"{}")
    part = file_part(tmp_path, "sub/a.json")
    assert (part.raw, part.filename, part.media_type) == (b"{}", "sub/a.json", "application/json")
    assert file_part(tmp_path, "sub/a.json", "text/x").media_type == "text/x"


@pytest.mark.parametrize("name", ["gone.txt", "sub", "link.txt", "pipe", "", "."])
def test_a_path_that_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.txt").touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.txt").symlink_to("a.txt")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is no file"):
        file_part(tmp_path, name)


@pytest.mark.skipif(os.uname().sysname == "Darwin", reason="names of files are text there")
def test_a_file_name_that_is_no_text_is_replaced_by_one(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"x")
    [name] = scan(tmp_path)
    assert file_part(tmp_path, name).filename == "caf?.txt"


# -- what a caller sends -----------------------------------------------------------------------------------------------


def test_the_files_of_a_message_do_not_lie_where_the_program_runs_and_links_are_not_laid(tmp_path: Path) -> None:
    names = save_files(tmp_path, [file("a.txt", b"1"), Part(url="https://example.com/b.txt"), file("c d.txt", b"")])
    assert names == ["inbox/a.txt", "inbox/c d.txt"]
    assert (tmp_path / "inbox/a.txt").read_bytes() == b"1"
    assert (tmp_path / "inbox/c d.txt").read_bytes() == b""
    assert [path.name for path in tmp_path.iterdir()] == ["inbox"]
    assert stat.S_IMODE((tmp_path / "inbox").stat().st_mode) == 0o700


def test_without_files_there_is_no_inbox(tmp_path: Path) -> None:
    assert save_files(tmp_path, [Part(url="https://example.com/b.txt")]) == []
    assert list(tmp_path.iterdir()) == []


def test_an_inbox_that_is_none_is_not_used(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    for each in (folder, outside):
        each.mkdir()
    (folder / "inbox").symlink_to(outside)
    (folder / "inbox-2").touch()
    assert save_files(folder, [file("a.txt")]) == ["inbox-3/a.txt"]
    assert (folder / "inbox-3" / "a.txt").is_file()
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("C:\\Users\\fox\\plan.txt", "plan.txt"),
        (".bashrc", "bashrc"),
        ("...", "file-1"),
        ("..", "file-1"),
        ("a/..", "file-1"),
        ("a/", "file-1"),
        ("", "file-1"),
        (None, "file-1"),
        ("-rf", "rf"),
        ("a\nb\0c.txt", "a_b_c.txt"),
        ("$(rm)`ls`;*.txt", "_(rm)_ls___.txt"),
        ("Plano de férias (1).txt", "Plano de férias (1).txt"),
        ("日本.txt", "日本.txt"),
        ("\ud800.txt", "_.txt"),
        ("x" * 500, "x" * 200),
        ("é" * 150, "é" * 100),
    ],
)
def test_of_a_name_only_what_is_a_name_is_kept(tmp_path: Path, given: str | None, kept: str) -> None:
    assert save_files(tmp_path, [file(given)]) == [f"inbox/{kept}"]
    assert [path.name for path in (tmp_path / "inbox").iterdir()] == [kept]


def test_two_files_of_one_name_are_both_kept(tmp_path: Path) -> None:
    names = save_files(
        tmp_path, [file("2-a", b"0"), file("a", b"1"), file("x/a", b"2"), file("2-a", b"3"), file("3-a", b"4")]
    )
    assert len(set(names)) == 5
    assert [(tmp_path / name).read_bytes() for name in names] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_file_that_is_sent_again_takes_the_place_of_the_earlier_one(tmp_path: Path) -> None:
    save_files(tmp_path, [file("a.txt", b"old and long")])
    assert save_files(tmp_path, [file("a.txt", b"new")]) == ["inbox/a.txt"]
    assert (tmp_path / "inbox/a.txt").read_bytes() == b"new"


def test_nothing_is_written_through_what_a_program_has_left(tmp_path: Path) -> None:
    inbox, outside = tmp_path / "inbox", tmp_path / "outside"
    inbox.mkdir()
    (inbox / "a.txt").symlink_to(outside)
    (inbox / "1-a.txt").symlink_to(outside)
    (inbox / "b.txt").mkdir()
    os.mkfifo(inbox / "c.txt")  # whoever opens that waits for ever
    names = save_files(tmp_path, [file("a.txt"), file("b.txt"), file("c.txt")])
    assert names == ["inbox/1-1-a.txt", "inbox/2-b.txt", "inbox/3-c.txt"]
    assert not outside.exists()


def test_saving_into_a_folder_that_is_gone_raises(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="inbox"):
        save_files(tmp_path / "gone", [file("a.txt")])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text() | st.sampled_from(["..", ".", "/", "a/../..", "\\", "~", "link", "../folder"]), max_size=5))
def test_no_file_name_leads_outside_the_folder(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "folder")
        inbox = folder / "inbox"
        inbox.mkdir(parents=True)
        (inbox / "link").symlink_to("..")
        kept = save_files(folder, [file(name, str(number).encode()) for number, name in enumerate(names)])
        assert [path.name for path in Path(place).iterdir()] == ["folder"]
        assert {str(path.relative_to(folder)) for path in inbox.iterdir()} == {*kept, "inbox/link"}
        assert [path.name for path in folder.iterdir()] == ["inbox"]
        assert [(folder / name).read_bytes().decode() for name in kept] == [str(number) for number in range(len(names))]
        assert set(scan(folder)) == set(kept)  # none is hidden
