"""`hookline run`: starts a program as several ranks, on one host or as one node of a multi-node job."""

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
from .nodes import EXIT_FAILURE, NodeAgent, NodeSpec, RendezvousError, parse_master_addr
from .output import open_missing_files
from .rank import Rank, describe
from .rendezvous_dir import RendezvousDir
from .supervisor import Supervisor

USAGE, NOT_EXECUTABLE, NOT_FOUND = 2, 126, 127  # the exit codes of POSIX shells

EPILOG = """\
A program whose name ends in .py runs with this Python; any other is searched for in the PATH.
Each rank's environment contains RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, HOOKLINE_STORE and
HOOKLINE_TOKEN, and MASTER_ADDR and MASTER_PORT for PyTorch's env://.
Rank 0 reads the terminal. If a rank fails, the launcher ends the others and returns the exit code of
the first failed rank: its own, or 128 plus the number of the signal that ended it.
For several nodes, start one launcher on each, with the same --nnodes, --master-addr and token; node 0
runs on the host of --master-addr. HOOKLINE_STORE then names the store on node 0, and GROUP_RANK is the
node's rank. A failure on one node ends the ranks on all nodes.
"""


class LaunchError(Exception):
    """The program cannot be started; `code` is the exit code of the launcher."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the command line; exits with a message if it is invalid."""
    parser = argparse.ArgumentParser(
        prog="hookline run",
        usage="hookline run -n RANKS [OPTION ...] [--] PROGRAM [ARGUMENT ...]\n"
        "       hookline run -n RANKS [OPTION ...] -m MODULE [ARGUMENT ...]",
        description="Starts a program as several ranks on this machine, alone or as one node of several.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-n", dest="ranks", metavar="RANKS", type=int, required=True, help="number of ranks to start on this node"
    )
    parser.add_argument("--prefix", action="store_true", help="prefix each output line with its rank, as in '[1] '")
    parser.add_argument(
        "--grace",
        metavar="SECONDS",
        type=float,
        default=5.0,
        help="time between SIGTERM and SIGKILL when ranks must end (default: 5)",
    )
    parser.add_argument("--nnodes", metavar="NODES", type=int, help="number of nodes of the job (default: 1)")
    parser.add_argument("--node-rank", metavar="NODE", type=int, help="rank of this node, from 0")
    parser.add_argument("--master-addr", metavar="HOST:PORT", help="the host of node 0 and a free port on it")
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the shared secret of the job's launchers, readable only by this user; node 0 creates it if it "
        "is missing (default: the environment variable HOOKLINE_TOKEN)",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=300.0,
        help="time that the nodes wait for each other at the start (default: 300)",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="MODULE: run a Python module, as python -m does")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.program[:1] == ["--"]:
        del options.program[0]
    if options.ranks < 1:
        parser.error(f"-n {options.ranks}: expected at least 1 rank")
    if options.ranks > MAX_RANKS:
        parser.error(f"-n {options.ranks}: expected at most {MAX_RANKS} ranks per node")
    if not 0 <= options.grace < float("inf"):
        parser.error(f"--grace {options.grace}: expected a number of seconds, 0 or more")
    if not options.program:
        parser.error("no program given" if not options.module else "-m: no module given")
    options.node_spec = node_spec(options, parser)
    return options


def node_spec(options: argparse.Namespace, parser: argparse.ArgumentParser) -> NodeSpec | None:
    """Returns this node's NodeSpec in a multi-node job; None for a job on one host."""
    nodes = 1 if options.nnodes is None else options.nnodes
    if nodes < 1:
        parser.error(f"--nnodes {nodes}: expected at least 1 node")
    if nodes > MAX_NODES:
        parser.error(f"--nnodes {nodes}: expected at most {MAX_NODES} nodes")
    if not 0 < options.timeout < float("inf"):
        parser.error(f"--timeout {options.timeout}: expected a positive number of seconds")
    if nodes > 1 and (options.master_addr is None or options.node_rank is None):
        parser.error(
            f"--nnodes {nodes}: --node-rank and --master-addr are required, as in --node-rank 0 --master-addr host:port"
        )
    if options.node_rank is not None and not 0 <= options.node_rank < nodes:
        parser.error(f"--node-rank {options.node_rank}: expected 0 to {nodes - 1} with --nnodes {nodes}")
    if options.master_addr is None:
        return None
    host, port = parse_master_addr(options.master_addr, parser.error)
    return NodeSpec(nodes, options.node_rank or 0, host, port, options.timeout)


def command_line(program: Sequence[str], module: bool) -> list[str]:
    """Returns the command for a program and its arguments; LaunchError if it is missing or not executable."""
    name, *arguments = program
    if module:
        top = name.partition(".")[0]
        # python -m also searches the current directory, which may be missing from the launcher's own path.
        if not importlib.machinery.PathFinder.find_spec(top, [os.getcwd()]) and not _is_importable(top):
            raise LaunchError(f"no Python module '{top}'", NOT_FOUND)
        return [sys.executable, "-m", name, *arguments]
    if name.endswith(".py"):
        if not os.path.isfile(name):
            raise LaunchError(f"no Python file '{name}' in {os.getcwd()}", NOT_FOUND)
        if not os.access(name, os.R_OK):
            raise LaunchError(f"cannot read '{name}'", NOT_EXECUTABLE)
        return [sys.executable, name, *arguments]
    if found := shutil.which(name):
        return [found, *arguments]
    if os.path.dirname(name) and os.path.exists(name):
        raise LaunchError(f"'{name}' is not an executable file (Python files must end in .py)", NOT_EXECUTABLE)
    hint = f"; for the file in this directory, use './{name}'" if os.path.isfile(name) else ""
    where = "" if os.path.dirname(name) else " in the PATH"
    raise LaunchError(f"no program '{name}'{where}{hint}", NOT_FOUND)


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # a module without a spec, such as __main__
        return False


MULTI_NODE_VARIABLES = {"GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK", "TORCHELASTIC_USE_AGENT_STORE"}


def environment(
    rank: int, ranks: int, store: str, token: str, base: Mapping[str, str], port: int = 0
) -> dict[str, str]:
    """Returns the environment of one rank, derived from the launcher's own; `port` is for PyTorch's store."""
    result = {"PYTHONUNBUFFERED": "1"}  # output appears when it is written, and is not lost with the process
    if ranks > 1:
        # Otherwise OpenMP would use all cores in every rank. The user's own value takes precedence.
        result["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // ranks))
    # The variables of an outer multi-node launcher do not apply to these ranks.
    result.update({name: value for name, value in base.items() if name not in MULTI_NODE_VARIABLES})
    result.update(
        RANK=str(rank),
        WORLD_SIZE=str(ranks),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(ranks),
        HOOKLINE_STORE=store,
        HOOKLINE_TOKEN=token,
    )
    if port:
        result.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    return result


@contextlib.contextmanager
def reserved_port(address: str = "127.0.0.1") -> Iterator[int]:
    """Reserves a port on which rank 0 can serve PyTorch's store; 0 if the address does not exist.

    The reserving socket is bound but does not listen: the kernel assigns the port to no other process, while another
    socket with SO_REUSEADDR, such as that of PyTorch's store, can still bind it.
    """
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            reservation.bind((address, 0))
        yield reservation.getsockname()[1]


def job_environment(local_rank: int, agent: NodeAgent, base: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of one rank of a multi-node job."""
    node = agent.spec.rank
    result = environment(local_rank, agent.ranks[node], agent.store_url, agent.token, base)
    result.update(
        RANK=str(agent.first_rank + local_rank),
        WORLD_SIZE=str(sum(agent.ranks)),
        GROUP_RANK=str(node),
        GROUP_WORLD_SIZE=str(agent.spec.nodes),
        NODE_RANK=str(node),
        MASTER_ADDR=agent.host,
        MASTER_PORT=str(agent.torch_port),
    )
    return result


def ranks_text(ranks: Sequence[Rank]) -> str:
    """Returns a list of ranks in words, as in "rank 1" or "ranks 0, 2"; "9 ranks" if there are more than 8."""
    if len(ranks) > 8:
        return f"{len(ranks)} ranks"
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(str(rank.number) for rank in ranks)}"


def describe_outcome(ranks: Sequence[Rank], subject: str) -> str:
    """Describes how these ranks ended, as in "; the other 3 ranks were terminated"; `subject` names all of them."""
    terminated = [rank for rank in ranks if rank.was_terminated]
    text = ""
    if terminated and len(terminated) == len(ranks):
        text = f"; {subject} terminated"
    elif terminated:
        text = f"; {ranks_text(terminated)} {'was' if len(terminated) == 1 else 'were'} terminated"
    exited: dict[tuple[bool, int], list[Rank]] = {}
    for rank in ranks:
        if not rank.was_terminated and rank.status is not None:
            exited.setdefault((rank.sigterm_sent, rank.status), []).append(rank)
    for (sigterm_sent, status), some in exited.items():
        when = "exited after SIGTERM" if sigterm_sent else "had already exited"
        text += f"; {ranks_text(some)} {when} ({describe(status)})"
    return text


def report(supervisor: Supervisor, remote_cause: str | None = None) -> str:
    """Returns the final report, empty if all ranks succeeded. `remote_cause` is the reason from another node."""
    failure, ranks = supervisor.first_failure, supervisor.ranks
    lines = []
    if supervisor.ended_by is not None:
        lines.append(f"hookline run: ended by {supervisor.ended_by.name}")
    elif remote_cause is not None:
        lines.append(f"hookline run: {remote_cause}{describe_outcome(ranks, 'the ranks of this node were')}")
    elif failure is not None and failure.status is not None:
        lines.append(f"hookline run: rank {failure.number} (pid {failure.pid}) failed: {describe(failure.status)}")
        others = [rank for rank in ranks if rank is not failure]
        subject = "the other rank was" if len(others) == 1 else f"the other {len(others)} ranks were"
        lines[0] += describe_outcome(others, subject)
        if tail := failure.stderr.last_lines():
            lines += ["last lines of its stderr:", *(f"  {line}" for line in tail)]
    for reason in dict.fromkeys(rank.kill_reason for rank in ranks if rank.kill_reason):
        killed = [str(rank.number) for rank in ranks if rank.kill_reason == reason]
        lines.append(f"killed {reason}: rank {', '.join(killed)}")
    return "".join(f"{line}\n" for line in lines)


def launch(command: Sequence[str], ranks: int, token: str, prefix: bool, grace: float) -> int:
    """Runs a job on one host and returns the exit code of the launcher. OSError if a rank cannot start."""
    # The supervisor is entered first: from then on no signal ends the launcher before it has cleaned up.
    with Supervisor(grace) as supervisor:
        with RendezvousDir() as directory, reserved_port() as port:

            def publish(rank: Rank) -> None:
                if any(other.status is None for other in supervisor.ranks):
                    directory.publish_exit(rank.number)

            supervisor.on_success = publish
            try:
                for rank in range(ranks):
                    variables = environment(rank, ranks, directory.path, token, os.environ, port)
                    directory.kill_with_launcher(supervisor.start(rank, command, variables, prefix))
                supervisor.wait()
            finally:
                supervisor.kill_all()
        supervisor.flush(report(supervisor))
    return exit_code(supervisor.first_failure)


def launch_node(command: Sequence[str], agent: NodeAgent, prefix: bool, grace: float) -> int:
    """Runs this node's ranks of a multi-node job. On node 0, returns only after the other nodes have ended."""
    published = []
    with Supervisor(grace) as supervisor, agent:

        def publish_end() -> None:
            published.append(True)
            failure, signal = supervisor.first_failure, supervisor.ended_by
            if failure is not None and failure.status is not None and signal is None:
                text = f"rank {failure.number} (pid {failure.pid}) failed: {describe(failure.status)}"
                agent.publish_end(text, exit_code(failure))
            elif signal is not None:
                agent.publish_end(f"the launcher was ended by {signal.name}", 128 + signal)

        def handle_event() -> None:
            if agent.take_event() is not None:
                supervisor.terminate_ranks()

        supervisor.on_end = publish_end
        supervisor.on_success = lambda rank: agent.publish_exit(rank.number)
        with RendezvousDir() as directory:  # only for its reaper: the ranks use the store on node 0
            try:
                for local_rank in range(agent.ranks[agent.spec.rank]):
                    variables = job_environment(local_rank, agent, os.environ)
                    rank = agent.first_rank + local_rank
                    directory.kill_with_launcher(supervisor.start(rank, command, variables, prefix))
                agent.start_listening()  # starts a thread, so only after the last fork
                supervisor.add_listener(agent.events, handle_event)
                supervisor.wait(lambda: agent.spec.rank == 0 and not agent.others_ended)
                supervisor.remove_listener(agent.events)
            finally:
                supervisor.kill_all()
        end = None if published else agent.end  # a failure on this node takes precedence
        remote_cause = f"{end.sender}: {end.text}" if end is not None else None
        supervisor.flush(report(supervisor, remote_cause))
    return end.code if end is not None else exit_code(supervisor.first_failure)


def raise_descriptor_limit() -> None:
    """Raises RLIMIT_NOFILE to its hard limit: the store on node 0 has a connection from every rank."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def exit_code(failure: Rank | None) -> int:
    """Returns the launcher's exit code for the first rank that failed."""
    if failure is None or failure.status is None:
        return 0
    return failure.status if failure.status >= 0 else 128 - failure.status


def main(arguments: Sequence[str]) -> int:
    """Runs the subcommand and returns the exit code."""
    open_missing_files()
    options = parse(arguments)
    try:
        command = command_line(options.program, options.module)
        spec: NodeSpec | None = options.node_spec
        nodes, node = (1, 0) if spec is None else (spec.nodes, spec.rank)
        token = find_token(options.token_file, nodes, node, options.timeout, os.environ)
        if spec is None:
            return launch(command, options.ranks, token, options.prefix, options.grace)
        if node == 0:
            raise_descriptor_limit()
        with reserved_port("0.0.0.0") if node == 0 else contextlib.nullcontext(0) as torch_port:
            # Joins before the supervisor handles signals: until then a signal ends the launcher, and no rank runs yet.
            agent = NodeAgent(spec, options.ranks, token, torch_port)
            return launch_node(command, agent, options.prefix, options.grace)
    except TokenError as error:
        print(f"hookline run: {error}", file=sys.stderr)
        return USAGE
    except RendezvousError as error:
        print(f"hookline run: {error}", file=sys.stderr)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        print("hookline run: ended by SIGINT", file=sys.stderr)
        return 130
    except LaunchError as error:
        print(f"hookline run: {error}", file=sys.stderr)
        return error.code
    except OSError as error:  # a resource limit, a full file system, or a file that is not a program
        print(f"hookline run: cannot start {options.ranks} ranks of {options.program[0]}: {error}", file=sys.stderr)
        return NOT_EXECUTABLE
