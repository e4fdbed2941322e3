"""The control messages that launchers exchange through the store: encoding, decoding and validation.

A malformed message is a ControlError, whatever its bytes are. `end` and `ended/<node>` are bound to their sender by a
commitment: a node publishes the SHA-256 of a secret when it joins, and reveals the secret when it ends.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

MAX_BYTES = 64 << 10  # of one message
MAX_RANKS = 1 << 16  # on one node
MAX_NODES = (1 << 15) - 1  # the ranks of all nodes fit into 31 bits
MAX_HOST = 255
MAX_TEXT = 2000


class ControlError(Exception):
    """A control message is malformed, or its sender is not the expected node."""


@dataclass(frozen=True)
class Hello:
    """Sent by a node when it joins: its rank count and host, the port for PyTorch (node 0 only), its commitment."""

    ranks: int
    host: str
    port: int
    commitment: str


@dataclass(frozen=True)
class JobEnd:
    """The reason why the job ends and its exit code, from the node that noticed it first."""

    node: int
    text: str
    code: int
    secret: str


def encode(message: Hello | JobEnd) -> bytes:
    """Serializes a message."""
    return json.dumps(asdict(message)).encode()


def commitment(secret: bytes) -> str:
    """Returns the hash that a node publishes before it reveals its secret."""
    return hashlib.sha256(secret).hexdigest()


def printable(text: str, max_length: int = MAX_TEXT) -> str:
    """Returns text from another process made safe for a terminal: control characters escaped, length limited."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[:max_length])
    return shown + "…" if len(text) > max_length else shown


def decode_hello(node: int, value: bytes) -> Hello:
    """Decodes the message `node/<node>`."""
    name = f"'node/{node}' of node {node}"
    fields = _object(name, value, {"ranks", "host", "port", "commitment"})
    hello = Hello(
        ranks=_integer(name, fields, "ranks", 1, MAX_RANKS),
        host=printable(_text(name, fields, "host", MAX_HOST)),
        port=_integer(name, fields, "port", 0, 65535),
        commitment=_text(name, fields, "commitment", 64),
    )
    if len(hello.commitment) != 64:
        raise ControlError(f"malformed control message {name}: 'commitment': expected 64 hexadecimal digits")
    return hello


def decode_end(value: bytes) -> JobEnd:
    """Decodes the message `end`. Its node may be outside of the job: a launcher with another --nnodes also ends it."""
    fields = _object("'end'", value, {"node", "text", "code", "secret"})
    return JobEnd(
        node=_integer("'end'", fields, "node", 0, MAX_NODES),
        text=printable(_text("'end'", fields, "text", MAX_BYTES)),
        code=_integer("'end'", fields, "code", 1, 255),  # never 0: the job was stopped
        secret=_text("'end'", fields, "secret", MAX_TEXT),
    )


def decode_nodes(value: bytes) -> int:
    """Decodes the number of nodes that another launcher wrote."""
    if not (value.isdigit() and len(value) < 10 and 1 <= int(value) <= MAX_NODES):
        raise ControlError(f"malformed control message 'nodes': expected a number, got {value[:40]!r}")
    return int(value)


def is_sent_by(hello: Hello, secret: bytes) -> bool:
    """True if `secret` matches the commitment in `hello`."""
    return commitment(secret) == hello.commitment


def _object(name: str, value: bytes, expected: set[str]) -> dict[str, Any]:
    if len(value) > MAX_BYTES:
        raise ControlError(f"malformed control message {name}: expected at most {MAX_BYTES} bytes, got {len(value)}")
    try:
        fields = json.loads(value)
    except RecursionError as error:
        raise ControlError(f"malformed control message {name}: nested too deeply") from error
    except ValueError as error:  # includes invalid UTF-8 and numbers with too many digits
        raise ControlError(f"malformed control message {name}: invalid JSON: {printable(str(error), 100)}") from error
    if not isinstance(fields, dict) or set(fields) != expected:
        raise ControlError(f"malformed control message {name}: expected the fields {', '.join(sorted(expected))}")
    return fields


def _integer(name: str, fields: dict[str, Any], field: str, low: int, high: int) -> int:
    value = fields[field]
    if type(value) is not int or not low <= value <= high:  # bool is an int
        got = printable(repr(value), 40) if isinstance(value, int | float | str) else type(value).__name__
        raise ControlError(f"malformed control message {name}: '{field}': expected {low} to {high}, got {got}")
    return value


def _text(name: str, fields: dict[str, Any], field: str, max_length: int) -> str:
    value = fields[field]
    if not isinstance(value, str) or len(value) > max_length:
        raise ControlError(
            f"malformed control message {name}: '{field}': expected a string of at most {max_length} characters"
        )
    return value
