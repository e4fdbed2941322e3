"""The control messages that launchers exchange through the store: their fields, and the checks on what comes in.

A malformed message is a ControlError, whatever its bytes are. `end` and `ended/<node>` are bound to their sender: a
node publishes the SHA-256 of a secret when it comes, and reveals the secret when it ends.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

MAX_BYTES = 64 << 10  # size of one message
MAX_RANKS = 1 << 16  # ranks on one node
MAX_NODES = (1 << 15) - 1  # so that the ranks of all nodes fit into 31 bits
MAX_HOST = 255
MAX_TEXT = 2000


class ControlError(Exception):
    """A control message is malformed, or its sender is not the one that it must be."""


@dataclass(frozen=True)
class Hello:
    """What a node tells when it comes: its ranks and its host, the port for PyTorch (node 0), its commitment."""

    ranks: int
    host: str
    port: int
    commitment: str


@dataclass(frozen=True)
class End:
    """The reason for which the whole job ends, as told by the node that saw it first, and the exit code."""

    node: int
    text: str
    code: int
    secret: str


def encode(message: Hello | End) -> bytes:
    """Returns the bytes of a message."""
    return json.dumps(asdict(message)).encode()


def commitment(secret: bytes) -> str:
    """Returns what a node publishes of its secret before it reveals it."""
    return hashlib.sha256(secret).hexdigest()


def printable(text: str, longest: int = MAX_TEXT) -> str:
    """Returns text of another process for a terminal: control characters escaped, cut off after `longest`."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[:longest])
    return shown + "…" if len(text) > longest else shown


def decode_hello(node: int, value: bytes) -> Hello:
    """Returns the message `node/<node>`."""
    name = f"'node/{node}' of node {node}"
    fields = _object(name, value, {"ranks", "host", "port", "commitment"})
    hello = Hello(
        ranks=_integer(name, fields, "ranks", 1, MAX_RANKS),
        host=printable(_text(name, fields, "host", MAX_HOST)),
        port=_integer(name, fields, "port", 0, 65535),
        commitment=_text(name, fields, "commitment", 64),
    )
    if len(hello.commitment) != 64:
        raise ControlError(f"malformed control message {name}: 'commitment' must have 64 digits")
    return hello


def decode_end(value: bytes) -> End:
    """Returns the message `end`. Its node may be none of the job: a launcher with another --nnodes ends it, too."""
    fields = _object("'end'", value, {"node", "text", "code", "secret"})
    return End(
        node=_integer("'end'", fields, "node", 0, MAX_NODES),
        text=printable(_text("'end'", fields, "text", MAX_BYTES)),
        code=_integer("'end'", fields, "code", 1, 255),  # a job that is ended has not ended well
        secret=_text("'end'", fields, "secret", MAX_TEXT),
    )


def decode_nodes(value: bytes) -> int:
    """Returns the number of nodes that another launcher wrote."""
    if not (value.isdigit() and len(value) < 10 and 1 <= int(value) <= MAX_NODES):
        raise ControlError(f"malformed control message 'nodes': expected a number, got {value[:40]!r}")
    return int(value)


def is_sent_by(hello: Hello, secret: bytes) -> bool:
    """True if `secret` is that of the node which sent `hello`."""
    return commitment(secret) == hello.commitment


def _object(name: str, value: bytes, expected: set[str]) -> dict[str, Any]:
    if len(value) > MAX_BYTES:
        raise ControlError(f"malformed control message {name}: {len(value)} bytes, at most {MAX_BYTES} are allowed")
    try:
        fields = json.loads(value)
    except RecursionError as error:
        raise ControlError(f"malformed control message {name}: nested too deeply") from error
    except ValueError as error:  # also of bytes that are no UTF-8, and of numbers with too many digits
        raise ControlError(f"malformed control message {name}: no JSON: {printable(str(error), 100)}") from error
    if not isinstance(fields, dict) or set(fields) != expected:
        raise ControlError(f"malformed control message {name}: expected the fields {', '.join(sorted(expected))}")
    return fields


def _integer(name: str, fields: dict[str, Any], field: str, low: int, high: int) -> int:
    value = fields[field]
    if type(value) is not int or not low <= value <= high:  # bool is an int
        got = printable(repr(value), 40) if isinstance(value, int | float | str) else type(value).__name__
        raise ControlError(f"malformed control message {name}: '{field}' must be from {low} to {high}, got {got}")
    return value


def _text(name: str, fields: dict[str, Any], field: str, longest: int) -> str:
    value = fields[field]
    if not isinstance(value, str) or len(value) > longest:
        raise ControlError(f"malformed control message {name}: '{field}' must be text of at most {longest} characters")
    return value
