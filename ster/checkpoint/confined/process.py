"""Run a checkpoint's program in a process of its own, and trust nothing that it does.

The process may loop, grow, die or answer nonsense. The parent bounds how long it waits
and how much it reads, and then ends the process. Requests are JSON, so no text can be
taken for a command.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ster.checkpoint.confined.exchange import Exchange, TooSlowError, pipes
from ster.checkpoint.confined.limits import OUT_OF_MEMORY

# A cold start reads some hundred files, which takes its time on a network disk.
START_SECONDS = 30.0
# The folders go behind the standard library, so that nothing in them can shadow it.
_BOOTSTRAP = """\
import sys
sys.path += sys.argv[2:]
from importlib import import_module
import_module(sys.argv[1]).main()
"""
_NEEDED_VARIABLES = (
    "TZ",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "SYSTEMROOT",
    "RAYON_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
)

Reply = dict[str, object]


class ProcessFailure(Exception):
    """The process did not do its work; the message says why, as the end of a sentence.

    No person sees it: the caller turns it into a refusal.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a process runs.

    Args:
        module: Its ``main`` answers requests.
        needs: The packages that it imports.
        work: The end of "the process that ...", such as ``renders it``.
        set_up_seconds: How long it may take over its first request.
    """

    module: str
    needs: tuple[str, ...]
    work: str
    set_up_seconds: float

    @property
    def not_started(self) -> str:
        """The reason for a failure where no process came up."""
        return f"the process that {self.work} did not start"


# By module, a process that was started ahead, and the id of the one that started it.
_spares: dict[str, tuple[int, subprocess.Popen[bytes]]] = {}


def start_ahead(program: Program) -> None:
    """Start a process for the next ``ConfinedProcess`` of this program.

    It comes up while the caller imports slow libraries. A failure is not said here: the
    ``ConfinedProcess`` will try again, and say it.
    """
    if program.module in _spares:
        return
    with suppress(ProcessFailure):
        _spares[program.module] = os.getpid(), _spawn(program)


@atexit.register
def _end_spares() -> None:
    while _spares:
        _, (owner, process) = _spares.popitem()
        _end(process, owner)


def _take_or_spawn(program: Program) -> subprocess.Popen[bytes]:
    owner, spare = _spares.pop(program.module, (0, None))
    return spare if spare is not None and owner == os.getpid() else _spawn(program)


class ConfinedProcess:
    """One program's process, which is started when needed, and again after its end.

    Threads may share it. After a fork the child starts a process of its own.

    Args:
        program: What it runs.
        setup: Its first request, sent at once; the reply is ``{}`` or has an ``error``.
    """

    def __init__(self, program: Program, setup: Mapping[str, object]) -> None:
        self._program = program
        self._setup = setup
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._exchange: Exchange | None = None
        self._finalizer: weakref.finalize[..., ConfinedProcess] | None = None
        self._is_set_up = False

    def start(self) -> None:
        """Start the process without waiting for it; ``ask`` waits.

        Raises:
            ProcessFailure: It cannot be started.
        """
        self._leave_to_parent()
        with self._lock:
            self._start()

    def ask(
        self,
        requests: Sequence[Mapping[str, object]],
        *,
        seconds: float,
        max_reply_bytes: int,
    ) -> list[Reply]:
        """Send requests and return their replies.

        Where the setup is refused, the reply to the setup is returned alone.

        Args:
            requests: What to ask.
            seconds: How long each reply may take.
            max_reply_bytes: How long a reply may be.

        Raises:
            ProcessFailure: The process cannot be started, dies, or takes too long.
        """
        self._leave_to_parent()
        lines = [json.dumps(request).encode("ascii") + b"\n" for request in requests]
        with self._lock:
            try:
                setup = self._set_up()
                if "error" in setup:
                    replies = [setup]
                else:
                    limits = [seconds] * len(lines)
                    replies = self._receive(b"".join(lines), limits, max_reply_bytes)
            except BaseException:
                # Also on Ctrl-C: a late reply would be taken for the next request's.
                self.close()
                raise
            if "error" in setup:
                self.close()
            return replies

    def close(self) -> None:
        """End the process. A later ``ask`` starts another."""
        if self._finalizer is not None:
            self._finalizer()
        self._forget()

    def _forget(self) -> None:
        self._process = self._exchange = self._finalizer = None
        self._is_set_up = False

    def _leave_to_parent(self) -> None:
        """Forget, after a fork, the process that answers the parent."""
        if self._owner == os.getpid():
            return
        if self._process is not None:
            # It is no child of this process, so there is nothing to wait for.
            self._process.returncode = 0
            for pipe in pipes(self._process):
                pipe.close()
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._forget()

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        self._process = _take_or_spawn(self._program)
        self._finalizer = weakref.finalize(self, _end, self._process, os.getpid())
        self._exchange = Exchange(self._process)
        # An empty line asks whether it is up, so the setup's time starts after that.
        setup = json.dumps(self._setup).encode("ascii")
        self._exchange.send(b"\n" + setup + b"\n")

    def _set_up(self) -> Reply:
        """Make sure that a process is set up; return its reply to the setup."""
        self._start()
        if self._is_set_up:
            return {}
        limits = [START_SECONDS, self._program.set_up_seconds]
        up, reply = self._receive(b"", limits, 1 << 20)
        if up:
            raise ProcessFailure(self._program.not_started)
        self._is_set_up = True
        return reply

    def _receive(
        self, data: bytes, limits: Sequence[float], max_reply_bytes: int
    ) -> list[Reply]:
        """Send data and wait for a reply for each limit, in seconds."""
        if self._process is None or self._exchange is None:
            raise ProcessFailure(f"the process that {self._program.work} is gone")
        try:
            replies = self._exchange.converse(data, limits, max_reply_bytes)
        except TooSlowError as error:
            if not self._is_set_up and error.replies == 0:
                raise ProcessFailure(self._program.not_started) from None
            raise ProcessFailure(f"it took longer than {error}") from None
        except OverflowError:
            raise ProcessFailure("its answer is longer than it may be") from None
        except OSError:
            raise ProcessFailure(self._cause_of_death(self._process)) from None
        if len(replies) != len(limits):
            raise ProcessFailure(self._answered_nonsense)
        return [self._read(reply) for reply in replies]

    def _read(self, reply: bytes) -> Reply:
        try:
            answer = json.loads(reply.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise ProcessFailure(self._answered_nonsense)
        return answer

    @property
    def _answered_nonsense(self) -> str:
        return f"the process that {self._program.work} answered nonsense"

    def _cause_of_death(self, process: subprocess.Popen[bytes]) -> str:
        who = f"the process that {self._program.work}"
        try:
            code = process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return f"{who} hung up"
        if code == OUT_OF_MEMORY:
            return "it needs too much memory"
        return f"{who} ended with exit status {code}"


def _spawn(program: Program) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise ProcessFailure("there is no Python interpreter to run it with")
    # -I and -S: no setting, start-up file or folder of the user reaches the child.
    command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOTSTRAP]
    command += [program.module, *_module_paths(program.needs)]
    environment = {n: os.environ[n] for n in _NEEDED_VARIABLES if n in os.environ}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=environment,
            # Ctrl-C goes to the parent alone, which ends the child.
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ProcessFailure(program.not_started) from error
    for pipe in pipes(process):
        os.set_blocking(pipe.fileno(), False)
    return process


def _module_paths(packages: tuple[str, ...]) -> list[str]:
    """Find the folders of ster and of some packages, importing none."""
    folders = [str(Path(__file__).parents[3])]
    for name in packages:
        found = importlib.util.find_spec(name)
        places = None if found is None else found.submodule_search_locations
        if not places:
            raise ProcessFailure(f"{name} cannot be found")
        for place in map(os.path.abspath, places):
            # A native module inside is found first, without its package around it.
            if any(re.fullmatch(rf"{name}\..*\.so", n) for n in os.listdir(place)):
                folders.append(place)
            folders.append(os.path.dirname(place))
    return list(dict.fromkeys(folders))


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """Kill a process and wait for its end; only the process that owns it may."""
    if os.getpid() != owner:
        return
    process.kill()
    process.wait()
    for pipe in pipes(process):
        pipe.close()
