"""The key ring: where secrets come from, and what is never shown of them."""

from __future__ import annotations

import copy
import os
import pickle
import stat
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from support.imported import packages_after

from dragoman.keys.ring import KeyRing
from dragoman.model.error import ConfigError

OLD, NEW = "an old secret of the house", "a new secret of the house"


def traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_the_first_secret_makes_and_all_of_them_read():
    before = KeyRing.from_text(OLD).seal("cookie", b"ada")
    ring = KeyRing.from_text(f" {NEW} , {OLD} ")
    assert len(ring) == 2
    assert ring.unseal("cookie", before) == b"ada"
    assert KeyRing.from_text(NEW).unseal("cookie", ring.seal("cookie", b"bob")) == b"bob"


def test_a_secret_makes_the_same_keys_for_ever():
    # Whoever changes one of these makes every cookie and every stored credential unreadable.
    assert KeyRing.from_text(OLD).subkeys("a purpose")[0].hex() == (
        "5f2c888a32c37c073cc178037628a0e3cb97d9d2650fea9b18b8da5d85c89a44"
    )
    minted = "dk1_" + "A" * 43
    assert KeyRing.from_text(minted).subkeys("a purpose")[0].hex() == (
        "da9ca40c30c1c70045c41a46ba7e6313a9fce0f6b9bb26767d2c217c2fa8fa6a"
    )


def test_a_purpose_and_a_secret_each_make_a_key_of_their_own():
    ring = KeyRing.from_text(f"{NEW},{OLD}")
    keys = {*ring.subkeys("a"), *ring.subkeys("b"), *ring.subkeys("a", 48)}
    assert len(keys) == 6
    assert {len(key) for key in keys} == {32, 48}


def test_a_secret_means_the_same_in_the_setting_and_in_the_file(tmp_path: Path):
    file = tmp_path / "tasks.db.key"
    ring = KeyRing.from_file(file)
    assert KeyRing.from_text(file.read_text().strip()).subkeys("x") == ring.subkeys("x")


def test_a_repeated_secret_counts_once():
    assert len(KeyRing.from_text(f"{NEW},{NEW}")) == 1


@pytest.mark.parametrize("text", ["", "fifteen-letters", f"{NEW},", f"{NEW},hush-s3cr3t", ",", f" {' ' * 20} "])
def test_a_short_secret_is_refused_and_not_shown(text: str):
    with pytest.raises(ConfigError, match=r"the setting secret.* 16 ") as caught:
        KeyRing.from_text(text)
    for secret in (each.strip() for each in text.split(",")):
        assert not secret or secret not in traceback_of(caught.value)


def test_the_error_says_which_of_several_secrets_is_short():
    with pytest.raises(ConfigError, match="secret 2 of 3, has 5 characters"):
        KeyRing.from_text(f"{NEW},short,{OLD}")


def test_nothing_printed_of_a_ring_has_a_secret():
    ring = KeyRing.from_text(f"{NEW},{OLD}")
    assert repr(ring) == "<KeyRing of 2>"
    for text in (str(ring), f"{ring}", repr([ring]), repr(ring.signer())):
        assert NEW not in text
        assert OLD not in text
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(ring)
    with pytest.raises(TypeError, match="pickled"):
        copy.deepcopy(ring)


def test_two_random_rings_have_nothing_in_common():
    assert not set(KeyRing.random().subkeys("x")) & set(KeyRing.random().subkeys("x"))


def test_the_key_file_is_made_for_its_owner_alone(tmp_path: Path):
    file = tmp_path / "tasks.db.key"
    before = os.umask(0)
    try:
        ring = KeyRing.from_file(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["tasks.db.key"]  # and nothing is left of the making
    assert len(file.read_text().strip()) >= 43
    assert KeyRing.from_file(file).unseal("x", ring.seal("x", b"y")) == b"y"


def test_the_lines_of_the_key_file_are_secrets_newest_first(tmp_path: Path):
    file = tmp_path / "k"
    file.write_text(f"{NEW}\n\n  {OLD}\r\n")
    file.chmod(0o600)
    assert KeyRing.from_file(str(file)).subkeys("x") == KeyRing.from_text(f"{NEW},{OLD}").subkeys("x")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o666])
def test_a_key_file_that_others_can_use_is_refused(tmp_path: Path, mode: int):
    file = tmp_path / "k"
    file.write_text(f"{NEW}\n")
    file.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600") as caught:
        KeyRing.from_file(file)
    assert NEW not in traceback_of(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "is empty"), (b"\n \n", "is empty"), (b"hush-s3cr3t\n", "has 11 characters"), (b"\xff" * 40, "not text")],
)
def test_a_key_file_without_a_good_secret_is_refused(tmp_path: Path, content: bytes, says: str):
    file = tmp_path / "k"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=says) as caught:
        KeyRing.from_file(file)
    assert "hush" not in traceback_of(caught.value)
    assert file.read_bytes() == content


def test_a_key_file_that_cannot_be_made_or_read_is_a_mistake_of_the_setting(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"cannot be made.*DRAGOMAN_SECRET"):
        KeyRing.from_file(tmp_path / "nowhere" / "k")
    with pytest.raises(ConfigError, match="cannot be read"):
        KeyRing.from_file(tmp_path)


def test_processes_that_make_the_file_at_once_get_one_secret(tmp_path: Path):
    script = (
        "import sys; from dragoman.keys.ring import KeyRing; print('ready', flush=True); sys.stdin.read();"
        "print(KeyRing.from_file(sys.argv[1]).subkeys('x')[0].hex())"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "k")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(4)]  # type: ignore[call-overload]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.close()  # now
    found = {process.stdout.read() for process in processes}
    for process in processes:
        process.stdout.close()
        assert process.wait(30) == 0
    assert len(found) == 1
    assert len(found.pop()) == 65
    assert [each.name for each in tmp_path.iterdir()] == ["k"]


def test_importing_the_ring_imports_no_cryptography():
    loaded = packages_after("import dragoman.keys.ring, dragoman.keys.card_signature, dragoman.keys.signer")
    assert "dragoman" in loaded
    assert not {"cryptography", "jwt"} & loaded
