"""Keep the process that renders a chat template, and trust nothing that it does.

It may loop, grow, die or answer rubbish: the parent waits so long, reads so much, then
ends it. Template and prompts travel as JSON, so no text can be taken for a command.
"""

from __future__ import annotations

import importlib.util
import json
import os
import selectors
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from ster.errors import TemplateError

FAILED = "this model's chat template failed to render"
NOT_STARTED = "the process that renders it did not start"
# A cold start reads some hundred files, which takes its time on a network disk.
START_SECONDS = 30.0
REPLY_SECONDS = 5.0
# The longest text that the child sends, at six bytes a character; prompts come on top.
MAX_REPLY_BYTES = 64 << 20
_PIPE_BYTES = 1 << 16
# Behind the standard library, so that nothing in these folders can shadow it.
_BOOTSTRAP = """\
import sys
sys.path += sys.argv[1:]
from ster.checkpoint.template.worker import main
main()
"""
_NEEDED_VARIABLES = (
    "TZ",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "SYSTEMROOT",
)
_OUT_OF_MEMORY = 86


class TemplateProcess:
    """One template's process. It runs by the time it is asked, and anew after its end.

    Safe to ask from several threads, and after a fork, where it starts once more.

    Args:
        template: The source of the template.
        special_tokens: The tokens it may name, by name.
    """

    def __init__(self, template: str, special_tokens: Mapping[str, str]) -> None:
        self._setup = {"template": template, "special_tokens": dict(special_tokens)}
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[..., TemplateProcess] | None = None
        self._knows_template = False

    def start(self) -> None:
        """Start the process and do not wait for it: a question that comes will.

        Raises:
            TemplateError: It cannot be started.
        """
        self._leave_to_parent()
        with self._lock:
            self._start()

    def ask(self, requests: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
        """Send conversations and return their replies: ``text`` or ``error``.

        A refusal of the template itself is the one reply.

        Raises:
            TemplateError: The process cannot be started, dies, or takes too long.
        """
        self._leave_to_parent()
        with self._lock:
            try:
                setup = self._set_up()
                replies = [setup] if "error" in setup else self._exchange(requests)
            except BaseException:
                # Also on Ctrl-C: a late reply would be taken for the next one's.
                self.close()
                raise
            if "error" in setup:
                self.close()
            return replies

    def close(self) -> None:
        """End the process. A later question starts another."""
        if self._finalizer is not None:
            self._finalizer()
        self._process = self._finalizer = None
        self._knows_template = False

    def _leave_to_parent(self) -> None:
        """Forget, after a fork, the process that answers the parent."""
        if self._owner == os.getpid():
            return
        if self._process is not None:
            # It is no child of this process, so there is nothing to wait for.
            self._process.returncode = 0
            for pipe in _pipes(self._process):
                pipe.close()
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._process = self._finalizer = None
        self._knows_template = False

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        self._process = _spawn()
        self._finalizer = weakref.finalize(self, _end, self._process, os.getpid())

    def _set_up(self) -> dict[str, object]:
        """Make sure that a process knows the template; return its word on it."""
        self._start()
        if self._knows_template:
            return {}
        # An empty line asks whether it is up, so the template's time starts after that.
        if self._receive([b"\n"], START_SECONDS, NOT_STARTED) != [b"{}"]:
            raise _failure(NOT_STARTED)
        self._knows_template = True
        return self._exchange([self._setup])[0]

    def _exchange(
        self, requests: Sequence[Mapping[str, object]]
    ) -> list[dict[str, object]]:
        lines = [json.dumps(request).encode("ascii") + b"\n" for request in requests]
        late = f"it took longer than {REPLY_SECONDS:.0f} seconds"
        replies = self._receive(lines, REPLY_SECONDS, late)
        try:
            answers = [json.loads(r.decode("utf-8", "surrogatepass")) for r in replies]
        except (ValueError, RecursionError):
            answers = []
        if len(answers) != len(lines) or not all(isinstance(a, dict) for a in answers):
            raise _failure("the process that renders it answered nonsense")
        return answers

    def _receive(self, lines: list[bytes], seconds: float, late: str) -> list[bytes]:
        """Send lines and wait for one for each, no longer than that for the next."""
        if self._process is None:
            raise _failure("the process that renders it is gone")
        try:
            with selectors.PollSelector() as selector:
                return _converse(selector, self._process, lines, seconds)
        except TimeoutError:
            raise _failure(late) from None
        except OverflowError:
            raise _failure("it writes more text than any model takes") from None
        except OSError:
            raise _failure(_cause_of_death(self._process)) from None


def _converse(
    selector: selectors.PollSelector,
    process: subprocess.Popen[bytes],
    lines: list[bytes],
    seconds: float,
) -> list[bytes]:
    """Write all lines and read as many; more if the other side talks too much.

    Raises:
        TimeoutError: For so long nothing has come.
        OverflowError: A reply is longer than any rendered text.
        OSError: The other side hung up.
    """
    deadline = time.monotonic() + seconds
    writer, reader = (pipe.fileno() for pipe in _pipes(process))
    max_bytes = MAX_REPLY_BYTES + 24 * max(map(len, lines))
    unsent = memoryview(b"".join(lines))
    begun = bytearray()
    replies: list[bytes] = []
    selector.register(writer, selectors.EVENT_WRITE)
    selector.register(reader, selectors.EVENT_READ)
    while len(replies) < len(lines):
        ready = selector.select(max(deadline - time.monotonic(), 0.0))
        if not ready:
            raise TimeoutError
        for key, _ in ready:
            if key.fd == writer:
                unsent = unsent[_write(writer, unsent) :]
                if not unsent:
                    selector.unregister(writer)
                continue
            data = _read(reader)
            begun += data
            if b"\n" in data:
                *whole, begun = begun.split(b"\n")
                replies += map(bytes, whole)
                deadline = time.monotonic() + seconds
        if len(begun) > max_bytes:
            raise OverflowError
    return [*replies, bytes(begun)] if begun else replies


def _read(reader: int) -> bytes:
    data = os.read(reader, _PIPE_BYTES)
    if not data:
        raise BrokenPipeError
    return data


def _write(writer: int, data: memoryview) -> int:
    try:
        return os.write(writer, data[:_PIPE_BYTES])
    except BlockingIOError:
        return 0


def _spawn() -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise _failure("there is no Python interpreter to run it with")
    # -I and -S: no setting, start-up file or folder of the person reaches the child.
    command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOTSTRAP]
    command += _module_paths()
    environment = {n: os.environ[n] for n in _NEEDED_VARIABLES if n in os.environ}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=environment,
            # Ctrl-C is for the person's program; it ends the child itself.
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise TemplateError(f"{FAILED}: {NOT_STARTED}", error) from error
    for pipe in _pipes(process):
        os.set_blocking(pipe.fileno(), False)
    return process


def _module_paths() -> list[str]:
    """Find the folders of ster, jinja2 and what jinja2 needs, importing none."""
    folders = [str(Path(__file__).parents[3])]
    for name in ("jinja2", "markupsafe"):
        found = importlib.util.find_spec(name)
        places = None if found is None else found.submodule_search_locations
        if not places:
            raise _failure(f"{name} cannot be found")
        folders += [os.path.dirname(os.path.abspath(place)) for place in places]
    return list(dict.fromkeys(folders))


def _cause_of_death(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        return "the process that renders it hung up"
    if code == _OUT_OF_MEMORY:
        return "it needs too much memory"
    return f"the process that renders it ended with exit status {code}"


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """Kill a process, unless it is a fork's that runs this, and wait for its end."""
    if os.getpid() != owner:
        return
    process.kill()
    process.wait()
    for pipe in _pipes(process):
        pipe.close()


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    """Return the two ends that belong to the parent, writer first."""
    if process.stdin is None or process.stdout is None:
        raise ValueError("the process has no pipes")
    return process.stdin, process.stdout


def _failure(reason: str) -> TemplateError:
    return TemplateError(f"{FAILED}: {reason}")
