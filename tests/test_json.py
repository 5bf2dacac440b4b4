"""Strict reading, and files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ster.documents.strict_json import JsonError, read_json
from ster.documents.whole_files import AtomicFile
from ster.errors import OutputError

json_texts = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | json_texts,
    lambda inner: st.lists(inner) | st.dictionaries(json_texts, inner),
    max_leaves=20,
)


@given(json_values, st.booleans(), st.sampled_from([None, 1]))
def test_every_document_is_read_as_it_was_written(
    value: object, ascii_only: bool, indent: int | None
):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert read_json(text.encode()) == value


@settings(max_examples=40)  # of what is slow to make up
@given(st.lists(st.tuples(json_texts, json_values), min_size=1), json_values)
def test_a_repeated_key_is_refused_wherever_it_stands(
    pairs: list[tuple[str, object]], value: object
):
    fields = ",".join(f"{json.dumps(k)}:{json.dumps(v)}" for k, v in pairs)
    unique = len(dict(pairs)) == len(pairs)
    if unique:
        assert read_json(f"[{{{fields}}}]".encode()) == [dict(pairs)]
    repeated = f"{fields},{json.dumps(pairs[0][0])}:{json.dumps(value)}"
    with pytest.raises(JsonError, match="is given twice$"):
        read_json(f'{{"outer":[{{{repeated}}}]}}'.encode())


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b'{"a":1,"a":2}', 'key "a" is given twice'),
        (b'{"a":1,"\\u0061":1}', 'key "a" is given twice'),
        (b'[{"x":{"a\\nb":":","a\\nb":0}}]', r'key "a\nb" is given twice'),
        (b'{"\\\\":1,":":2,"\\\\":3}', r'key "\\" is given twice'),
        (b'{"a":1,"a":' + b"[" * 990 + b"]" * 990 + b"}", "given twice"),
        (b'{"a":1,"a":' + b"9" * 5000 + b"}", "infinity"),
        (b'{"a":1,"a":' + b"9" * 300 + b"}", 'key "a" is given twice'),
    ],
)
def test_a_repeated_key_is_named(data: bytes, detail: str):
    with pytest.raises(JsonError) as refusal:
        read_json(data)
    assert detail in str(refusal.value)


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":":","b\\"":"\\\\"}',
        b'{"a:b\\\\":1,"c\\\\\\"":{"d":":::"}}',
        b'["{\\"a\\":1,\\"a\\":2}"]',
        b'[{"a":1},{"a":1}]',
        b'{"a":{"a":{"a":1}}}',
        b'{"e\\\\E":1,"0:1":2,"[:]":3}',
    ],
)
def test_colons_and_quotes_in_strings_are_no_keys(data: bytes):
    assert read_json(data) == json.loads(data)


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"", "it is empty"),
        (b" \r\n\t", "it is empty"),
        (b"\xef\xbb\xbf", "it is empty"),
        (b"\xef\xbb\xbf\xef\xbb\xbf[]", "line 1 column 1"),
        (b"NaN", "line 1 column 1"),
        (b"[\n1,\n  Infinity]", "line 3 column 3"),
        (b"-Infinity", "line 1 column"),
        (b"1e400", "infinity"),
        (b"-1e999", "infinity"),
        (b"[1] [2]", "line 1 column 5"),
        (b"[1]\x00", "line 1 column 4"),
        (b"[1,]", "trailing comma"),
        (b"{'a':1}", "line 1 column 2"),
        (b"{a:1}", "line 1 column 2"),
        (b"[01]", "leading zero"),
        (b"[+1]", "line 1 column 2"),
        (b"[.5]", "line 1 column 2"),
        (b"[1.]", "line 1 column"),
        (b"// x\n[1]", "line 1 column 1"),
        (b'"a\nb"', "control character"),
        (b'"a', "line 1 column"),
        (b'"\\x41"', "line 1 column"),
        (b'"\\ud800"', "surrogate"),
        (b'"\\udc00"', "surrogate"),
        (b'"\\ud800\\u0041"', "surrogate"),
        (b'{"\\ud800":1}', "surrogate"),
        (b'["\xff"]', "invalid UTF-8 at byte 2"),
        (b'["\xed\xa0\x80"]', "invalid UTF-8 at byte 2"),
        (b'["\xc0\x80"]', "invalid UTF-8 at byte 2"),
        (b'["\xf4\x90\x80\x80"]', "invalid UTF-8 at byte 2"),
        ("[1]".encode("utf-16"), "invalid UTF-8 at byte 0"),
        (b"[" * 100_000, "line 1 column"),
        (b"[" * 5000 + b"]" * 5000, "depth"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "depth"),
    ],
)
def test_what_is_no_strict_json_is_refused_with_the_place(data: bytes, detail: str):
    with pytest.raises(JsonError) as refusal:
        read_json(data)
    assert detail in str(refusal.value)
    assert "\n" not in str(refusal.value)


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes):
    try:
        outcome = read_json(data)
    except JsonError as refusal:
        outcome = refusal
    if isinstance(outcome, JsonError):
        assert "\n" not in str(outcome)
    else:
        assert outcome == json.loads(data.removeprefix(b"\xef\xbb\xbf"))


def test_a_byte_order_mark_and_surrounding_white_space_are_accepted():
    assert read_json(b'\xef\xbb\xbf \n{"a":"\\ud83e\\udd99"}\t') == {"a": "🦙"}


def write(path: str | os.PathLike[str], data: bytes = b"new") -> None:
    with AtomicFile(path) as file:
        file.write(data)


def tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def refusal_of(path: str | os.PathLike[str]) -> OutputError:
    """Expect that nothing can be written there, and that it shows at once."""
    with pytest.raises(OutputError) as refusal, AtomicFile(path):
        pytest.fail("the file was opened")
    assert refusal.value.sentence == f"failed to write {os.fspath(path)}"
    assert len(refusal.value.causes) == 1
    return refusal.value


def test_parents_are_made_and_nothing_else_is_left(tmp_path: Path):
    write(tmp_path / "a/b/out.json", b"12")
    assert tree(tmp_path) == ["a", "a/b", "a/b/out.json"]
    assert (tmp_path / "a/b/out.json").read_bytes() == b"12"


def test_relative_paths_and_dotted_parents_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    write("out.json")
    write("a/../b/./out.json")
    assert tree(tmp_path) == ["a", "b", "b/out.json", "out.json"]


def test_the_place_is_fixed_when_the_file_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with AtomicFile("out.json") as file:
        monkeypatch.chdir("elsewhere")
        file.write(b"new")
    assert tree(tmp_path) == ["elsewhere", "out.json"]


def test_readers_see_the_old_file_until_the_new_one_is_whole(tmp_path: Path):
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    with AtomicFile(path) as file:
        file.write(b"x" * 1_000_000)
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"x" * 1_000_000
    assert tree(tmp_path) == ["out.json"]


def write_and_raise(path: Path, error: type[BaseException]) -> None:
    with AtomicFile(path) as file:
        file.write(b"x" * 1_000_000)
        raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_the_old_file_and_no_directories(
    tmp_path: Path, error: type[BaseException]
):
    (tmp_path / "old.json").write_bytes(b"old")
    for name in ("old.json", "a/b/c/new.json"):
        with pytest.raises(error):
            write_and_raise(tmp_path / name, error)
    assert tree(tmp_path) == ["old.json"]
    assert (tmp_path / "old.json").read_bytes() == b"old"


def test_directories_that_another_uses_meanwhile_stay(tmp_path: Path):
    file = AtomicFile(tmp_path / "a/b/out.json")
    file.__enter__()
    (tmp_path / "a/other").touch()
    file.__exit__(RuntimeError, None, None)
    assert tree(tmp_path) == ["a", "a/other"]


def run_python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


KILLED = """
import os, signal, sys
from ster.documents.whole_files import AtomicFile
with AtomicFile(sys.argv[1]) as file:
    file.write(b"x" * 1_000_000)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    assert run_python(KILLED, str(path)).returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert all(name.startswith(".ster-") for name in tree(tmp_path)[:-1])


FULL = """
import resource, sys
from ster.documents.whole_files import AtomicFile
from ster.errors import OutputError
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with AtomicFile(sys.argv[1]) as file:
        for _ in range(int(sys.argv[2])):
            file.write(b"x" * 1_000)
except OutputError as error:
    print(error)
"""


@pytest.mark.parametrize("num_writes", [101, 1_000])
@pytest.mark.parametrize("name", ["old.json", "a/new.json"])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, name: str, num_writes: int):
    (tmp_path / "old.json").write_bytes(b"old")
    run = run_python(FULL, str(tmp_path / name), str(num_writes))
    assert run.stdout.startswith(f"failed to write {tmp_path / name}: File too large")
    assert run.stderr == ""
    assert tree(tmp_path) == ["old.json"]
    assert (tmp_path / "old.json").read_bytes() == b"old"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("size", [1, 1_000_000])
def test_a_full_device_is_a_refusal(size: int):
    with pytest.raises(OutputError, match=r"^failed to write /dev/full: No space left"):
        write("/dev/full", b"x" * size)


def test_devices_are_written_and_never_replaced():
    write("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(RuntimeError), AtomicFile("/dev/null"):
        raise RuntimeError
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_pipe_is_written_and_stays(tmp_path: Path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    write(path)
    reader.join(timeout=30)
    assert read == [b"new"]
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert tree(tmp_path) == ["pipe"]


def test_a_socket_is_refused_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        refusal_of("socket")
        assert stat.S_ISSOCK(os.stat("socket").st_mode)


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="no /dev/fd here")
def test_an_open_file_without_a_name_is_written_directly(tmp_path: Path):
    path = tmp_path / "out.json"
    with path.open("w+b") as file:
        path.unlink()
        write(f"/dev/fd/{file.fileno()}")
        file.seek(0)  # the place in it is shared
        assert file.read() == b"new"
    assert tree(tmp_path) == []


@pytest.mark.parametrize("present", [True, False])
def test_a_link_stays_and_its_target_is_written(tmp_path: Path, present: bool):
    (tmp_path / "data").mkdir()
    if present:
        (tmp_path / "data/out.json").write_bytes(b"old")
    (tmp_path / "middle").symlink_to("data/out.json")
    (tmp_path / "link").symlink_to(tmp_path / "middle")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "middle").is_symlink()
    assert (tmp_path / "data/out.json").read_bytes() == b"new"
    assert tree(tmp_path) == ["data", "data/out.json", "link", "middle"]


def test_links_that_lead_nowhere_are_refused(tmp_path: Path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "lost").symlink_to("missing/out.json")
    before = tree(tmp_path)
    assert "symbolic links" in refusal_of(tmp_path / "loop").causes[0]
    assert "No such file" in refusal_of(tmp_path / "lost").causes[0]
    refusal_of(tmp_path / "lost/out.json")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666, 0o755])
def test_an_existing_files_mode_is_kept(tmp_path: Path, mode: int):
    path = tmp_path / "out.json"
    path.touch()
    path.chmod(mode)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_new_files_and_directories_obey_the_umask(tmp_path: Path, umask: int):
    before = os.umask(umask)
    try:
        write(tmp_path / "a/out.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o777 & ~umask
    assert stat.S_IMODE((tmp_path / "a/out.json").stat().st_mode) == 0o666 & ~umask


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_permissions_are_asked_for_first(tmp_path: Path):
    (tmp_path / "closed").mkdir(mode=0o555)
    (tmp_path / "protected").touch(mode=0o444)
    for name in ("closed/out.json", "closed/a/out.json", "protected"):
        assert "Permission denied" in refusal_of(tmp_path / name).causes[0]
    assert tree(tmp_path) == ["closed", "protected"]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("", "Is a directory"),
        ("directory", "Is a directory"),
        ("directory/", "Is a directory"),
        ("directory/.", "Is a directory"),
        ("directory/..", "Is a directory"),
        ("to-directory", "Is a directory"),
        ("new/", "Is a directory"),
        ("a/b/", "Is a directory"),
        ("a/b/.", "Is a directory"),
        ("file/out.json", "Not a directory"),
        ("file/a/out.json", "Not a directory"),
        ("file/", "Is a directory"),
        ("a/b/" + "n" * 256, "File name too long"),
        ("a/" + "n" * 256 + "/out.json", "File name too long"),
        ("a/nul\0", "embedded null byte"),
        ("a/nul\0/out.json", "embedded null byte"),
        ("a/\ud800", "surrogates not allowed"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, name: str, cause: str
):
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "to-directory").symlink_to("directory")
    before = tree(tmp_path)
    assert cause in refusal_of(f"{tmp_path}/{name}").causes[0]
    assert tree(tmp_path) == before
    assert (tmp_path / "file").read_bytes() == b"old"


def test_an_empty_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert refusal_of("").causes[0].startswith("No such file or directory")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc here")
@pytest.mark.parametrize("path", ["/proc/ster.json", "/proc/ster/out.json"])
def test_a_file_system_that_takes_no_files_is_refused(path: str):
    refusal_of(path)


def test_a_lost_working_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    refusal_of("out.json")


@pytest.mark.parametrize("name", ["n" * 255, "é" * 127, "🦙" * 63])
def test_names_of_full_length_are_written(tmp_path: Path, name: str):
    write(tmp_path / name)
    assert tree(tmp_path) == [name]


def remove_temporary(path: Path) -> None:
    (temporary,) = path.parent.glob(".ster-*.tmp")
    temporary.unlink()


def remove_parent(path: Path) -> None:
    remove_temporary(path)
    path.parent.rmdir()


@pytest.mark.parametrize("vanish", [remove_temporary, remove_parent, Path.mkdir])
def test_a_place_that_changes_midway_is_refused(
    tmp_path: Path, vanish: Callable[[Path], None]
):
    path = tmp_path / "a/out.json"
    file = AtomicFile(path)
    file.__enter__()
    file.write(b"new")
    vanish(path)
    with pytest.raises(OutputError, match=f"^failed to write {path}: "):
        file.__exit__(None, None, None)
    assert not list(tmp_path.rglob(".ster-*"))
    assert not path.is_file()


def test_writing_to_a_file_that_is_not_open_is_refused(tmp_path: Path):
    file = AtomicFile(tmp_path / "out.json")
    with pytest.raises(OutputError, match="not open"):
        file.write(b"x")
    with file:
        pass
    with pytest.raises(OutputError, match="closed"):
        file.write(b"x")
    assert tree(tmp_path) == ["out.json"]


def test_a_home_that_no_shell_expanded_makes_no_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError) as caught, AtomicFile("~/out.json"):
        pass
    assert caught.value.sentence == "failed to write ~/out.json"
    assert "whole path" in caught.value.causes[0]
    assert list(tmp_path.iterdir()) == []
