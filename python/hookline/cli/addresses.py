"""The address on which the launcher of node 0 listens, from the name that --master gives."""

import contextlib
import fcntl
import ipaddress
import socket
import struct

SIOCGIFFLAGS, SIOCGIFADDR = 0x8913, 0x8915
IFF_UP, IFF_LOOPBACK, IFF_RUNNING = 0x1, 0x8, 0x40


class AddressError(Exception):
    """The name of the master does not tell on which address to listen."""


def own_addresses() -> dict[str, str]:
    """Returns the IPv4 address of each interface of this host that is up, by the interface's name, without loopback."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("40s", name.encode())  # struct ifreq
            with contextlib.suppress(OSError):  # an interface without an address, or one that has just gone
                (flags,) = struct.unpack_from("=H", fcntl.ioctl(asking, SIOCGIFFLAGS, request), 16)
                if flags & (IFF_UP | IFF_RUNNING | IFF_LOOPBACK) == IFF_UP | IFF_RUNNING:
                    found[name] = socket.inet_ntoa(fcntl.ioctl(asking, SIOCGIFADDR, request)[20:24])
    return found


def listening_host(host: str) -> str:
    """Returns the name or address to listen on for other hosts that know this one as `host`.

    That is `host` itself, unless it is a name that stands for loopback only on this host, as Debian's /etc/hosts has
    127.0.1.1: then the address of this host, if it has just one. AddressError if it has several.
    """
    if _is_local_by_name(host) or not all(map(_is_loopback, _resolve(host))):
        return host
    own = own_addresses()
    if len(own) == 1:
        return next(iter(own.values()))
    choice = ", ".join(f"{address} ({name})" for name, address in own.items())
    raise AddressError(
        f"on this host the name '{host}' stands for {', '.join(_resolve(host))}, where other nodes cannot reach it. "
        f"Give the same address on every node{f', one of {choice}' if choice else ''}."
    )


def _resolve(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _is_local_by_name(host: str) -> bool:
    """True for a loopback address, and for the names that stand for one everywhere."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    name = host.rstrip(".").lower()
    return name.endswith(".localhost") or name in ("localhost", "localhost.localdomain", "ip6-localhost")
