"""The launchers of several nodes as one job: they meet in a TCP store at the master, and end together."""

import contextlib
import queue
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from .. import Error, PeerLost, PrefixStore, Store, TCPStore, Timeout
from .addresses import AddressError, listening_host
from .control import (
    ControlError,
    End,
    Hello,
    commitment,
    decode_end,
    decode_hello,
    decode_nodes,
    encode,
    is_sent_by,
    printable,
)
from .private_store import ENDED_RANKS

PREFIX = "hookline.run"
BEAT = 0.5  # seconds from one sign of life of a node to the next
SILENCE = 30.0  # seconds after which a node that gave none counts as lost
GOODBYE = 5.0  # seconds that node 0 keeps the store for nodes that have not said that they ended
FAILED = 1  # the exit code where no rank's is known


@dataclass(frozen=True)
class Place:
    """Which node this is, and where the nodes meet, as the command line says."""

    nodes: int
    rank: int
    host: str
    port: int
    patience: float

    @property
    def master(self) -> str:
        """Host and port as one text."""
        return endpoint(self.host, self.port)


def endpoint(host: str, port: int) -> str:
    """Host and port as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class JobEnd:
    """The end of the whole job, as this node reports it: the sender of the message in words, text, exit code."""

    sender: str
    text: str
    code: int


class MeetingError(Exception):
    """The nodes did not come together."""


class Nodes:
    """This node's part in the job; a context manager."""

    def __init__(self, place: Place, ranks: int, token: str, torch_port: int = 0) -> None:
        """Meets the others; MeetingError if that fails. `torch_port` of node 0 is told to the others."""
        self.place = place
        self.token = token
        self.host = place.host  # the master as this node reaches it
        self.end: JobEnd | None = None  # set by the thread that uses `events`, when another node ended the job
        self.others_ended = place.nodes == 1
        self._secret = secrets.token_hex(32).encode()
        self._is_store_lost = False
        self._stop = threading.Event()
        self._news: queue.SimpleQueue[JobEnd | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.events, self._bell = socket.socketpair()
        try:
            tcp = self._open()
            # Connected before the meeting: once it is over, a lost master is a lost connection, at once.
            clone = tcp.clone()
            self._store, self._ear = PrefixStore(PREFIX, tcp), PrefixStore(PREFIX, clone)
            self._hellos = self._meet(Hello(ranks, socket.gethostname(), torch_port, commitment(self._secret)))
            for store, timeout in ((tcp, GOODBYE), (self._store, GOODBYE), (clone, SILENCE), (self._ear, SILENCE)):
                store.set_timeout(timeout)
        except ControlError as error:
            self.tell(str(error), FAILED)
            raise MeetingError(str(error)) from error
        except Error as error:
            raise MeetingError(str(error)) from error

    def __enter__(self) -> "Nodes":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Says that this node has ended; node 0 keeps the store a little for those that have not."""
        if kind is not None:
            self.tell(f"its launcher failed ({kind.__name__}: {error})", FAILED)
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if not self._is_store_lost:
            with contextlib.suppress(Error):
                self._store.set(f"ended/{self.place.rank}", self._secret)
                if self.place.rank == 0:
                    self._store.wait([f"ended/{node}" for node in range(1, self.place.nodes)], GOODBYE)
        self.events.close()
        self._bell.close()

    @property
    def ranks(self) -> list[int]:
        """The number of ranks of each node."""
        return [hello.ranks for hello in self._hellos]

    @property
    def torch_port(self) -> int:
        """The port on node 0 at which rank 0 may serve PyTorch's store; 0 where there is none."""
        return self._hellos[0].port

    @property
    def store_url(self) -> str:
        """The launchers' store, as this node reaches it."""
        return f"tcp://{endpoint(self.host, self.place.port)}"

    @property
    def first_rank(self) -> int:
        """The number of this node's first rank in the job."""
        return sum(self.ranks[: self.place.rank])

    def name(self, node: int) -> str:
        """A node in words."""
        return f"node {node} ({self._hellos[node].host})"

    def watch(self) -> None:
        """Begins to listen to the others, on a thread; `events` is readable when there is news for take_news()."""
        if self.place.nodes > 1:
            self._thread = threading.Thread(target=self._listen, daemon=True)
            self._thread.start()

    def take_news(self) -> JobEnd | None:
        """What the readable `events` was about: the end of the job; None where the other nodes have ended well."""
        self.events.recv(1)
        news = self._news.get_nowait()
        self.end = self.end or news
        self.others_ended = True
        return news

    def tell(self, text: str, code: int) -> None:
        """Ends the job on all nodes, unless another node has done so already. Does nothing if the store is lost."""
        if self._is_store_lost:
            return
        end = End(self.place.rank, printable(text), code, self._secret.decode())
        with contextlib.suppress(Error):
            self._store.compare_set("end", b"", encode(end))

    def tell_ended(self, rank: int) -> None:
        """Tells ranks that wait for this one in init_process_group that it has ended with exit code 0."""
        if not self._is_store_lost:
            with contextlib.suppress(Error):
                self._store.underlying_store.append(ENDED_RANKS, f" {rank}")

    def _open(self) -> TCPStore:
        place = self.place
        deadline = time.monotonic() + place.patience
        # The name of the master may be known only when its host or container has started.
        attempts = 0
        while True:
            try:
                socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
                break
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise MeetingError(
                        f"--master {place.master}: the host name '{place.host}' does not resolve: {error}"
                    ) from error
                if attempts == 0:
                    say = f"hookline run: --master {place.master}: {error}; trying again for {place.patience:g} s"
                    print(say, file=sys.stderr, flush=True)
                attempts += 1
                self._stop.wait(min(1.0, max(0.0, deadline - time.monotonic())))
        if place.rank == 0 and place.nodes > 1:
            try:
                self.host = listening_host(place.host)
            except AddressError as error:
                raise MeetingError(f"--master {place.master}: {error}") from error
        return TCPStore(
            self.host,
            place.port,
            is_master=place.rank == 0,
            timeout=max(0.001, deadline - time.monotonic()),
            wait_for_workers=False,
            token=self.token,
        )

    def _meet(self, mine: Hello) -> list[Hello]:
        place, store = self.place, self._store
        nodes = decode_nodes(store.compare_set("nodes", b"", str(place.nodes).encode()))
        if nodes != place.nodes:
            self.tell(f"it was started with --nnodes {place.nodes}, another one with --nnodes {nodes}", FAILED)
            raise MeetingError(f"--nnodes {place.nodes}: another launcher at {place.master} says --nnodes {nodes}")
        if store.add(f"claim/{place.rank}", 1) > 1:
            raise MeetingError(f"--node-rank {place.rank}: another launcher at {place.master} says the same")
        store.set(f"beat/{place.rank}", b"0")
        store.set(f"node/{place.rank}", encode(mine))
        keys = [f"node/{node}" for node in range(nodes)]
        deadline = time.monotonic() + place.patience
        while not _wait(store, keys, min(1.0, max(0.001, deadline - time.monotonic()))):
            self._raise_end()
            if time.monotonic() >= deadline:
                missing = ", ".join(str(node) for node in range(nodes) if not store.check([f"node/{node}"]))
                self.tell(f"node {missing} did not come within {place.patience:g} s", FAILED)
                raise MeetingError(
                    f"of {nodes} nodes, node {missing} did not come to {place.master} within {place.patience:g} s; "
                    "see whether its launcher has started and reaches that address"
                )
        return [decode_hello(node, value) for node, value in enumerate(store.multi_get(keys))]

    def _raise_end(self) -> None:
        if self._store.check(["end"]):
            end = decode_end(self._store.get("end"))
            raise MeetingError(f"node {end.node} ended the job: {end.text}")

    def _listen(self) -> None:
        """Runs on the thread: waits for the end of the job, giving and looking for signs of life meanwhile."""
        try:
            news = self._hear_end()
        except (PeerLost, Timeout) as error:
            self._is_store_lost = True
            news = JobEnd(self.name(0), f"the store that its launcher keeps is lost: {error}", FAILED)
        except (Error, ControlError) as error:
            news = JobEnd(self.name(self.place.rank), str(error), FAILED)
        except Exception as error:  # without this thread a failure elsewhere would go unnoticed
            news = JobEnd(self.name(self.place.rank), f"its launcher failed ({type(error).__name__}: {error})", FAILED)
        if not self._stop.is_set():
            self._news.put(news)
            self._bell.send(b"!")
            if news is not None:
                self.tell(news.text, news.code)  # does nothing where another node has told it

    def _read_end(self) -> JobEnd:
        end = decode_end(self._ear.get("end"))
        if end.node < self.place.nodes and is_sent_by(self._hellos[end.node], end.secret.encode()):
            return JobEnd(self.name(end.node), end.text, end.code)
        return JobEnd(f"a launcher with --node-rank {end.node} that is not part of this job", end.text, end.code)

    def _hear_end(self) -> JobEnd | None:
        store = self._ear
        # Node 0 listens to all others and they to it, so that the store has little to do.
        others = list(range(1, self.place.nodes)) if self.place.rank == 0 else [0]
        heard = dict.fromkeys(others, (b"", time.monotonic()))
        beats = 0
        while not self._stop.is_set():
            beats += 1
            store.set(f"beat/{self.place.rank}", str(beats).encode())
            if _wait(store, ["end"], BEAT):
                return self._read_end()
            for node in [node for node in others if store.check([f"ended/{node}"])]:
                if not is_sent_by(self._hellos[node], store.get(f"ended/{node}")):
                    raise ControlError(f"the control message 'ended/{node}' was not written by node {node}")
                others.remove(node)
            if not others:
                # A node writes 'end' before 'ended': it may have written both since the wait.
                return self._read_end() if store.check(["end"]) else None
            for node, beat in zip(others, store.multi_get([f"beat/{node}" for node in others]), strict=True):
                if beat != heard[node][0]:
                    heard[node] = (beat, time.monotonic())
                elif time.monotonic() - heard[node][1] > SILENCE:
                    self.tell(f"{self.name(node)} has given no sign of life for {SILENCE:g} s", FAILED)
        return None


def _wait(store: Store, keys: list[str], seconds: float) -> bool:
    try:
        store.wait(keys, seconds)
    except Timeout:
        return False
    return True


def read_master(text: str, fail: Callable[[str], None]) -> tuple[str, int]:
    """Host and port from `host:port` or `[address]:port`; `fail` is called with what is wrong, and does not return."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        fail(f"--master {text}: write an IPv6 address in brackets, as in [::1]:29500")
    if not colon or not host:
        fail(f"--master {text}: write host:port, the same on every node")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        fail(f"--master {text}: the port must be a number from 1 to 65535, the same on every node")
    return host, int(port)
