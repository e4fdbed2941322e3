"""`hookline run`: starts a program as several ranks, of one host or as one node's part of a job over several."""

import argparse
import contextlib
import importlib.machinery
import importlib.util
import os
import resource
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence

from .control import MAX_NODES, MAX_RANKS
from .job_token import TokenError, find_token
from .nodes import FAILED, MeetingError, Nodes, Place, read_master
from .output import open_missing_files
from .private_store import PrivateStore
from .rank import Rank, describe
from .supervisor import Supervisor

USAGE, NOT_EXECUTABLE, NOT_FOUND = 2, 126, 127  # as the shells have it

EPILOG = """\
A program that ends in .py is run by this Python; any other is looked for as a shell would.
Each rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, HOOKLINE_STORE and HOOKLINE_TOKEN in its
environment, and for PyTorch's env:// MASTER_ADDR and MASTER_PORT.
Rank 0 reads the terminal. If a rank fails, the others are ended, and the exit code is that of
the first that failed: its own, or 128 plus the number of the signal that ended it.
On several nodes, start one launcher on each, with the same --nnodes and --master and the same
token; node 0 is the master's host. HOOKLINE_STORE is then where the launcher of node 0 keeps the
store; there is also GROUP_RANK, the number of their node. A failure on one node ends the ranks of all.
"""


class LaunchError(Exception):
    """The program cannot be started; `code` is what the launcher exits with."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; exits with a message if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="hookline run",
        usage="hookline run -n RANKS [OPTION ...] [--] PROGRAM [ARGUMENT ...]\n"
        "       hookline run -n RANKS [OPTION ...] -m MODULE [ARGUMENT ...]",
        description="Starts a program as several ranks on this machine.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-n", dest="ranks", metavar="RANKS", type=int, required=True, help="how many ranks to start here"
    )
    parser.add_argument("--prefix", action="store_true", help="begin each line of output with its rank, as in '[1] '")
    parser.add_argument(
        "--grace",
        metavar="SECONDS",
        type=float,
        default=5.0,
        help="how long a rank that was told to end may take before it is killed (default: 5)",
    )
    parser.add_argument("--nnodes", metavar="NODES", type=int, help="how many nodes the job has (default: 1)")
    parser.add_argument("--node-rank", metavar="NODE", type=int, help="which of them this is, from 0 on")
    parser.add_argument("--master", metavar="HOST:PORT", help="where node 0 is, and a free port there")
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="the secret that the launchers of a job share, readable by this user alone; node 0 makes it if there is "
        "none (default: the variable HOOKLINE_TOKEN)",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=300.0,
        help="how long the nodes wait for each other at the beginning (default: 300)",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="MODULE: run a Python module, as python -m does")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.program[:1] == ["--"]:
        del options.program[0]
    if options.ranks < 1:
        parser.error(f"-n {options.ranks}: at least one rank is needed")
    if options.ranks > MAX_RANKS:
        parser.error(f"-n {options.ranks}: at most {MAX_RANKS} ranks can run on a node")
    if not 0 <= options.grace < float("inf"):
        parser.error(f"--grace {options.grace}: must be a number of seconds, 0 or more")
    if not options.program:
        parser.error("a program to run is missing" if not options.module else "-m: a module to run is missing")
    options.place = place(options, parser)
    return options


def place(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Place | None:
    """Which node this is; None where the job has no others."""
    nodes = 1 if options.nnodes is None else options.nnodes
    if nodes < 1:
        parser.error(f"--nnodes {nodes}: at least one node is needed")
    if nodes > MAX_NODES:
        parser.error(f"--nnodes {nodes}: a job has at most {MAX_NODES} nodes")
    if not 0 < options.timeout < float("inf"):
        parser.error(f"--timeout {options.timeout}: must be a number of seconds above 0")
    if nodes > 1 and (options.master is None or options.node_rank is None):
        parser.error(
            f"--nnodes {nodes}: --node-rank and --master are needed too, as in --node-rank 0 --master host:port"
        )
    if options.node_rank is not None and not 0 <= options.node_rank < nodes:
        parser.error(f"--node-rank {options.node_rank}: with --nnodes {nodes} it is from 0 to {nodes - 1}")
    if options.master is None:
        return None
    host, port = read_master(options.master, parser.error)
    return Place(nodes, options.node_rank or 0, host, port, options.timeout)


def command_line(program: Sequence[str], module: bool) -> list[str]:
    """What to execute for a program and its arguments; LaunchError if it is not there or not executable."""
    name, *arguments = program
    if module:
        top = name.partition(".")[0]
        # python -m also looks in the current directory; the launcher's own path need not have it.
        if not importlib.machinery.PathFinder.find_spec(top, [os.getcwd()]) and not _is_importable(top):
            raise LaunchError(f"there is no Python module '{top}'", NOT_FOUND)
        return [sys.executable, "-m", name, *arguments]
    if name.endswith(".py"):
        if not os.path.isfile(name):
            raise LaunchError(f"there is no Python file '{name}' (in {os.getcwd()})", NOT_FOUND)
        if not os.access(name, os.R_OK):
            raise LaunchError(f"'{name}' cannot be read", NOT_EXECUTABLE)
        return [sys.executable, name, *arguments]
    if found := shutil.which(name):
        return [found, *arguments]
    if os.path.dirname(name) and os.path.exists(name):
        raise LaunchError(f"'{name}' is not an executable file (a Python file ends in .py)", NOT_EXECUTABLE)
    hint = f"; for the file here, say './{name}'" if os.path.isfile(name) else ""
    where = "" if os.path.dirname(name) else " in the PATH"
    raise LaunchError(f"there is no program '{name}'{where}{hint}", NOT_FOUND)


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # a module that knows nothing about itself, such as __main__
        return False


OF_SEVERAL_NODES = {"GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK", "TORCHELASTIC_USE_AGENT_STORE"}


def environment(
    rank: int, ranks: int, store: str, token: str, base: Mapping[str, str], port: int = 0
) -> dict[str, str]:
    """The environment of one rank, made from the launcher's own; with a port on which PyTorch's ranks may meet."""
    made = {"PYTHONUNBUFFERED": "1"}  # output appears when it is written, and is not lost with the process
    if ranks > 1:
        # Every rank's OpenMP would otherwise use all cores. What the user has set stays.
        made["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // ranks))
    # What a launcher of several nodes around this one has said of them is not true of these ranks.
    made.update({name: value for name, value in base.items() if name not in OF_SEVERAL_NODES})
    made.update(
        RANK=str(rank),
        WORLD_SIZE=str(ranks),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(ranks),
        HOOKLINE_STORE=store,
        HOOKLINE_TOKEN=token,
    )
    if port:
        made.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    return made


@contextlib.contextmanager
def reserved_port(address: str = "127.0.0.1") -> Iterator[int]:
    """A port that no other process is given meanwhile, and on which rank 0 may listen; 0 without such an address.

    It is bound and does not listen; the kernel lets another socket with SO_REUSEADDR, as PyTorch's store has it, bind
    it as well. Programs that do not use torch.distributed never touch it.
    """
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            reservation.bind((address, 0))
        yield reservation.getsockname()[1]


def job_environment(local_rank: int, nodes: Nodes, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of one rank of a job of several nodes."""
    node = nodes.place.rank
    made = environment(local_rank, nodes.ranks[node], nodes.store_url, nodes.token, base)
    made.update(
        RANK=str(nodes.first_rank + local_rank),
        WORLD_SIZE=str(sum(nodes.ranks)),
        GROUP_RANK=str(node),
        GROUP_WORLD_SIZE=str(nodes.place.nodes),
        NODE_RANK=str(node),
        MASTER_ADDR=nodes.host,
        MASTER_PORT=str(nodes.torch_port),
    )
    return made


def ranks_text(ranks: Sequence[Rank]) -> str:
    """As in "rank 1" or "ranks 0, 2"; a number of ranks where they are many."""
    if len(ranks) > 8:
        return f"{len(ranks)} ranks"
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(str(rank.number) for rank in ranks)}"


def outcome(ranks: Sequence[Rank], all_of_them: str) -> str:
    """Returns what became of these ranks, as in "; the other 3 ranks were ended"; `all_of_them` begins the sentence."""
    ended = [rank for rank in ranks if rank.was_ended]
    text = ""
    if ended and len(ended) == len(ranks):
        text = f"; {all_of_them} ended"
    elif ended:
        text = f"; {ranks_text(ended)} {'was' if len(ended) == 1 else 'were'} ended"
    apart: dict[tuple[bool, int], list[Rank]] = {}
    for rank in ranks:
        if not rank.was_ended and rank.status is not None:
            apart.setdefault((rank.was_told, rank.status), []).append(rank)
    for (told, status), some in apart.items():
        how = "ended after SIGTERM" if told else f"had ended by {'itself' if len(some) == 1 else 'themselves'}"
        text += f"; {ranks_text(some)} {how} ({describe(status)})"
    return text


def report(supervisor: Supervisor, elsewhere: str | None = None) -> str:
    """What is said at the end, after all output; nothing if all went well. `elsewhere` is what another node said."""
    failure, ranks = supervisor.first_failure, supervisor.ranks
    lines = []
    if supervisor.ended_by is not None:
        lines.append(f"hookline run: ended by {supervisor.ended_by.name}")
    elif elsewhere is not None:
        lines.append(f"hookline run: {elsewhere}{outcome(ranks, 'the ranks of this node were')}")
    elif failure is not None and failure.status is not None:
        lines.append(f"hookline run: rank {failure.number} (pid {failure.pid}) failed: {describe(failure.status)}")
        others = [rank for rank in ranks if rank is not failure]
        lines[0] += outcome(others, "the other rank was" if len(others) == 1 else f"the other {len(others)} ranks were")
        if tail := failure.stderr.last_lines():
            lines += ["the end of its stderr:", *(f"  {line}" for line in tail)]
    for because in dict.fromkeys(rank.killed_because for rank in ranks if rank.killed_because):
        killed = [str(rank.number) for rank in ranks if rank.killed_because == because]
        lines.append(f"killed{because}: rank {', '.join(killed)}")
    return "".join(f"{line}\n" for line in lines)


def launch(command: Sequence[str], ranks: int, token: str, prefix: bool, grace: float) -> int:
    """Runs the ranks of one host to their end; returns the exit code for the launcher. OSError if one cannot start."""
    # The supervisor comes first: from there on no signal ends the launcher before it has cleaned up.
    with Supervisor(grace) as supervisor:
        with PrivateStore() as store, reserved_port() as port:

            def tell(rank: Rank) -> None:
                if any(other.status is None for other in supervisor.ranks):
                    store.tell_ended(rank.number)

            supervisor.on_success = tell
            try:
                for rank in range(ranks):
                    variables = environment(rank, ranks, store.path, token, os.environ, port)
                    store.watch(supervisor.start(rank, command, variables, prefix))
                supervisor.wait()
            finally:
                supervisor.end()
        supervisor.flush(report(supervisor))
    return exit_code(supervisor.first_failure)


def launch_node(command: Sequence[str], nodes: Nodes, prefix: bool, grace: float) -> int:
    """Runs this node's ranks of a job of several nodes; node 0 returns only when the others have ended as well."""
    told = []
    with Supervisor(grace) as supervisor, nodes:

        def tell() -> None:
            told.append(True)
            failure, signal = supervisor.first_failure, supervisor.ended_by
            if failure is not None and failure.status is not None and signal is None:
                text = f"rank {failure.number} (pid {failure.pid}) failed: {describe(failure.status)}"
                nodes.tell(text, exit_code(failure))
            elif signal is not None:
                nodes.tell(f"its launcher was ended by {signal.name}", 128 + signal)

        def hear() -> None:
            if nodes.take_news() is not None:
                supervisor.end_gently()

        supervisor.on_end = tell
        supervisor.on_success = lambda rank: nodes.tell_ended(rank.number)
        with PrivateStore() as guarded:  # for the guard: the ranks meet at the master
            try:
                for local_rank in range(nodes.ranks[nodes.place.rank]):
                    variables = job_environment(local_rank, nodes, os.environ)
                    guarded.watch(supervisor.start(nodes.first_rank + local_rank, command, variables, prefix))
                nodes.watch()  # a thread: only after the last fork
                supervisor.listen(nodes.events, hear)
                supervisor.wait(lambda: nodes.place.rank == 0 and not nodes.others_ended)
                supervisor.stop_listening(nodes.events)
            finally:
                supervisor.end()
        end = None if told else nodes.end  # what happened here is reported as such
        elsewhere = f"{end.sender}: {end.text}" if end is not None else None
        supervisor.flush(report(supervisor, elsewhere))
    return end.code if end is not None else exit_code(supervisor.first_failure)


def raise_descriptor_limit() -> None:
    """Lets this process open as many files as the system permits: the store of node 0 has connections of all ranks."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def exit_code(failure: Rank | None) -> int:
    """The launcher's exit code for the first rank that failed."""
    if failure is None or failure.status is None:
        return 0
    return failure.status if failure.status >= 0 else 128 - failure.status


def main(arguments: Sequence[str]) -> int:
    """Runs the sub-command; returns the exit code."""
    open_missing_files()
    options = parse(arguments)
    try:
        command = command_line(options.program, options.module)
        place: Place | None = options.place
        nodes, node = (1, 0) if place is None else (place.nodes, place.rank)
        token = find_token(options.token_file, nodes, node, options.timeout, os.environ)
        if place is None:
            return launch(command, options.ranks, token, options.prefix, options.grace)
        if node == 0:
            raise_descriptor_limit()
        with reserved_port("0.0.0.0") if node == 0 else contextlib.nullcontext(0) as torch_port:
            # Before the supervisor takes the signals over: one that comes now ends the launcher, and nothing else runs.
            meeting = Nodes(place, options.ranks, token, torch_port)
            return launch_node(command, meeting, options.prefix, options.grace)
    except TokenError as error:
        print(f"hookline run: {error}", file=sys.stderr)
        return USAGE
    except MeetingError as error:
        print(f"hookline run: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("hookline run: ended by SIGINT", file=sys.stderr)
        return 130
    except LaunchError as error:
        print(f"hookline run: {error}", file=sys.stderr)
        return error.code
    except OSError as error:  # no more processes, no more files, no room for the store, not a program after all
        print(f"hookline run: cannot start {options.ranks} x {options.program[0]}: {error}", file=sys.stderr)
        return NOT_EXECUTABLE
