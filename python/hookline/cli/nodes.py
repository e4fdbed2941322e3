"""A multi-node job: the launchers of all nodes rendezvous in a TCP store on node 0, and end together."""

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
from .addresses import AddressError, listen_address
from .control import (
    ControlError,
    Hello,
    JobEnd,
    commitment,
    decode_end,
    decode_hello,
    decode_nodes,
    encode,
    is_sent_by,
    printable,
)
from .rendezvous_dir import ENDED_RANKS

PREFIX = "hookline.run"
HEARTBEAT_INTERVAL = 0.5  # seconds
HEARTBEAT_TIMEOUT = 30.0  # seconds without a heartbeat after which a node counts as lost
SHUTDOWN_TIMEOUT = 5.0  # seconds that node 0 keeps the store for nodes that have not reported their end
EXIT_FAILURE = 1  # the exit code if no rank's exit code is known


@dataclass(frozen=True)
class NodeSpec:
    """The node rank, the node count and the address of node 0, from the command line."""

    nodes: int
    rank: int
    host: str
    port: int
    timeout: float

    @property
    def master(self) -> str:
        """The address of node 0 as host:port."""
        return endpoint(self.host, self.port)


def endpoint(host: str, port: int) -> str:
    """Returns host:port, or [address]:port for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class JobEndReport:
    """The end of the job as this node reports it: a description of the sender, the reason, the exit code."""

    sender: str
    text: str
    code: int


class RendezvousError(Exception):
    """The rendezvous of the nodes failed."""


class NodeAgent:
    """This node's membership in the job; a context manager."""

    def __init__(self, spec: NodeSpec, ranks: int, token: str, torch_port: int = 0) -> None:
        """Joins the other nodes; RendezvousError if that fails. Node 0 publishes its `torch_port`."""
        self.spec = spec
        self.token = token
        self.host = spec.host  # of node 0, as this node reaches it
        self.end: JobEndReport | None = None  # set by the thread that uses `events`, when another node ended the job
        self.others_ended = spec.nodes == 1
        self._secret = secrets.token_hex(32).encode()
        self._is_store_lost = False
        self._stop = threading.Event()
        self._events: queue.SimpleQueue[JobEndReport | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.events, self._event_writer = socket.socketpair()
        try:
            tcp = self._open()
            # Connected before the rendezvous, so that the loss of node 0 is noticed at once by the closed connection.
            clone = tcp.clone()
            self._store, self._listener_store = PrefixStore(PREFIX, tcp), PrefixStore(PREFIX, clone)
            self._hellos = self._join(Hello(ranks, socket.gethostname(), torch_port, commitment(self._secret)))
            tcp.set_timeout(SHUTDOWN_TIMEOUT)
            self._store.set_timeout(SHUTDOWN_TIMEOUT)
            clone.set_timeout(HEARTBEAT_TIMEOUT)
            self._listener_store.set_timeout(HEARTBEAT_TIMEOUT)
        except ControlError as error:
            self.publish_end(str(error), EXIT_FAILURE)
            raise RendezvousError(str(error)) from error
        except Error as error:
            raise RendezvousError(str(error)) from error

    def __enter__(self) -> "NodeAgent":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Reports that this node has ended. Node 0 keeps the store for SHUTDOWN_TIMEOUT for nodes that have not."""
        if kind is not None:
            self.publish_end(f"the launcher failed ({kind.__name__}: {error})", EXIT_FAILURE)
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if not self._is_store_lost:
            with contextlib.suppress(Error):
                self._store.set(f"ended/{self.spec.rank}", self._secret)
                if self.spec.rank == 0:
                    self._store.wait([f"ended/{node}" for node in range(1, self.spec.nodes)], SHUTDOWN_TIMEOUT)
        self.events.close()
        self._event_writer.close()

    @property
    def ranks(self) -> list[int]:
        """The number of ranks of each node."""
        return [hello.ranks for hello in self._hellos]

    @property
    def torch_port(self) -> int:
        """The port on node 0 for rank 0 to serve PyTorch's store; 0 if there is none."""
        return self._hellos[0].port

    @property
    def store_url(self) -> str:
        """The URL of the launchers' store, as this node reaches it."""
        return f"tcp://{endpoint(self.host, self.spec.port)}"

    @property
    def first_rank(self) -> int:
        """The global rank of this node's first rank."""
        return sum(self.ranks[: self.spec.rank])

    def name(self, node: int) -> str:
        """Returns the node's rank and host name for messages."""
        return f"node {node} ({self._hellos[node].host})"

    def start_listening(self) -> None:
        """Starts the listener thread. `events` becomes readable when take_event() has an event to return."""
        if self.spec.nodes > 1:
            self._thread = threading.Thread(target=self._listen, daemon=True)
            self._thread.start()

    def take_event(self) -> JobEndReport | None:
        """Returns the end of the job, None if the other nodes have exited successfully. `events` must be readable."""
        self.events.recv(1)
        end = self._events.get_nowait()
        self.end = self.end or end
        self.others_ended = True
        return end

    def publish_end(self, text: str, code: int) -> None:
        """Ends the job on all nodes, unless another node already has. Does nothing if the store is lost."""
        if self._is_store_lost:
            return
        end = JobEnd(self.spec.rank, printable(text), code, self._secret.decode())
        with contextlib.suppress(Error):
            self._store.compare_set("end", b"", encode(end))

    def publish_exit(self, rank: int) -> None:
        """Publishes that a rank exited with code 0, for ranks that wait for it in init_process_group."""
        if not self._is_store_lost:
            with contextlib.suppress(Error):
                self._store.underlying_store.append(ENDED_RANKS, f" {rank}")

    def _open(self) -> TCPStore:
        spec = self.spec
        deadline = time.monotonic() + spec.timeout
        # The host name may resolve only after node 0's host or container has started.
        attempts = 0
        while True:
            try:
                socket.getaddrinfo(spec.host, spec.port, type=socket.SOCK_STREAM)
                break
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise RendezvousError(
                        f"--master-addr {spec.master}: the host name '{spec.host}' does not resolve: {error}"
                    ) from error
                if attempts == 0:
                    message = f"hookline run: --master-addr {spec.master}: {error}; retrying for {spec.timeout:g} s"
                    print(message, file=sys.stderr, flush=True)
                attempts += 1
                self._stop.wait(min(1.0, max(0.0, deadline - time.monotonic())))
        if spec.rank == 0 and spec.nodes > 1:
            try:
                self.host = listen_address(spec.host)
            except AddressError as error:
                raise RendezvousError(f"--master-addr {spec.master}: {error}") from error
        return TCPStore(
            self.host,
            spec.port,
            is_master=spec.rank == 0,
            timeout=max(0.001, deadline - time.monotonic()),
            wait_for_workers=False,
            token=self.token,
        )

    def _join(self, hello: Hello) -> list[Hello]:
        spec, store = self.spec, self._store
        nodes = decode_nodes(store.compare_set("nodes", b"", str(spec.nodes).encode()))
        if nodes != spec.nodes:
            self.publish_end(
                f"it was started with --nnodes {spec.nodes}, another node with --nnodes {nodes}", EXIT_FAILURE
            )
            raise RendezvousError(
                f"--nnodes {spec.nodes}: another launcher at {spec.master} was started with --nnodes {nodes}. "
                "Pass the same --nnodes on every node."
            )
        if store.add(f"claim/{spec.rank}", 1) > 1:
            raise RendezvousError(
                f"--node-rank {spec.rank}: another launcher at {spec.master} has the same --node-rank. "
                f"Pass a different one from 0 to {spec.nodes - 1} on each node."
            )
        store.set(f"heartbeat/{spec.rank}", b"0")
        store.set(f"node/{spec.rank}", encode(hello))
        keys = [f"node/{node}" for node in range(nodes)]
        deadline = time.monotonic() + spec.timeout
        while not _wait(store, keys, min(1.0, max(0.001, deadline - time.monotonic()))):
            self._raise_if_ended()
            if time.monotonic() >= deadline:
                missing = ", ".join(str(node) for node in range(nodes) if not store.check([f"node/{node}"]))
                self.publish_end(f"node {missing} did not join within {spec.timeout:g} s", EXIT_FAILURE)
                raise RendezvousError(
                    f"node {missing} of {nodes} did not join at {spec.master} within {spec.timeout:g} s. "
                    "Check that its launcher was started and can reach that address."
                )
        return [decode_hello(node, value) for node, value in enumerate(store.multi_get(keys))]

    def _raise_if_ended(self) -> None:
        if self._store.check(["end"]):
            end = decode_end(self._store.get("end"))
            raise RendezvousError(f"node {end.node} ended the job: {end.text}")

    def _listen(self) -> None:
        """Runs on the listener thread: sends and checks heartbeats until the job ends."""
        try:
            event = self._wait_for_end()
        except (PeerLost, Timeout) as error:
            self._is_store_lost = True
            event = JobEndReport(self.name(0), f"lost the connection to its store: {error}", EXIT_FAILURE)
        except (Error, ControlError) as error:
            event = JobEndReport(self.name(self.spec.rank), str(error), EXIT_FAILURE)
        except Exception as error:  # without this thread, failures of other nodes would go unnoticed
            text = f"the launcher failed ({type(error).__name__}: {error})"
            event = JobEndReport(self.name(self.spec.rank), text, EXIT_FAILURE)
        if not self._stop.is_set():
            self._events.put(event)
            self._event_writer.send(b"!")
            if event is not None:
                self.publish_end(event.text, event.code)  # does nothing if another node has published it

    def _read_end(self) -> JobEndReport:
        end = decode_end(self._listener_store.get("end"))
        if end.node < self.spec.nodes and is_sent_by(self._hellos[end.node], end.secret.encode()):
            return JobEndReport(self.name(end.node), end.text, end.code)
        return JobEndReport(f"a launcher with --node-rank {end.node} that is not part of this job", end.text, end.code)

    def _wait_for_end(self) -> JobEndReport | None:
        store = self._listener_store
        # A star: node 0 checks all others, and they check only node 0. This keeps the load on the store low.
        others = list(range(1, self.spec.nodes)) if self.spec.rank == 0 else [0]
        last_heartbeats = dict.fromkeys(others, (b"", time.monotonic()))
        count = 0
        while not self._stop.is_set():
            count += 1
            store.set(f"heartbeat/{self.spec.rank}", str(count).encode())
            if _wait(store, ["end"], HEARTBEAT_INTERVAL):
                return self._read_end()
            for node in [node for node in others if store.check([f"ended/{node}"])]:
                if not is_sent_by(self._hellos[node], store.get(f"ended/{node}")):
                    raise ControlError(f"the control message 'ended/{node}' was not written by node {node}")
                others.remove(node)
            if not others:
                # A node writes 'end' before 'ended', and may have written both after the wait above.
                return self._read_end() if store.check(["end"]) else None
            values = store.multi_get([f"heartbeat/{node}" for node in others])
            for node, value in zip(others, values, strict=True):
                if value != last_heartbeats[node][0]:
                    last_heartbeats[node] = (value, time.monotonic())
                elif time.monotonic() - last_heartbeats[node][1] > HEARTBEAT_TIMEOUT:
                    self.publish_end(f"no heartbeat from {self.name(node)} for {HEARTBEAT_TIMEOUT:g} s", EXIT_FAILURE)
        return None


def _wait(store: Store, keys: list[str], seconds: float) -> bool:
    try:
        store.wait(keys, seconds)
    except Timeout:
        return False
    return True


def parse_master_addr(text: str, fail: Callable[[str], None]) -> tuple[str, int]:
    """Parses `host:port` or `[address]:port`. Calls `fail`, which does not return, with a message on a syntax error."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        fail(f"--master-addr {text}: expected an IPv6 address in brackets, as in [::1]:29500")
    if not colon or not host:
        fail(f"--master-addr {text}: expected HOST:PORT, the same on every node")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        fail(f"--master-addr {text}: expected a port from 1 to 65535, the same on every node")
    return host, int(port)
