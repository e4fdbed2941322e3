"""The address on which the launcher of node 0 listens, from the host name in --master-addr."""

import contextlib
import fcntl
import ipaddress
import socket
import struct

SIOCGIFFLAGS, SIOCGIFADDR = 0x8913, 0x8915
IFF_UP, IFF_LOOPBACK, IFF_RUNNING = 0x1, 0x8, 0x40


class AddressError(Exception):
    """The host name of the master does not determine an address to listen on."""


def host_addresses() -> dict[str, str]:
    """Returns the IPv4 addresses of this host's interfaces that are up, by interface name, without loopback."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        for _, name in socket.if_nameindex():
            request = struct.pack("40s", name.encode())  # struct ifreq
            with contextlib.suppress(OSError):  # an interface without an address, or one that was just removed
                (flags,) = struct.unpack_from("=H", fcntl.ioctl(query, SIOCGIFFLAGS, request), 16)
                if flags & (IFF_UP | IFF_RUNNING | IFF_LOOPBACK) == IFF_UP | IFF_RUNNING:
                    found[name] = socket.inet_ntoa(fcntl.ioctl(query, SIOCGIFADDR, request)[20:24])
    return found


def listen_address(host: str) -> str:
    """Returns the name or address to listen on so that other hosts reach this one as `host`.

    This is `host` itself, unless the name resolves to loopback only on this host (Debian's /etc/hosts maps the host
    name to 127.0.1.1). Then it is the address of this host; raises AddressError if there are several.
    """
    if _is_local_by_name(host) or not all(map(_is_loopback, _resolve(host))):
        return host
    own = host_addresses()
    if len(own) == 1:
        return next(iter(own.values()))
    choice = ", ".join(f"{address} ({name})" for name, address in own.items())
    raise AddressError(
        f"on this host '{host}' resolves to the loopback address {', '.join(_resolve(host))}, which other nodes cannot "
        f"reach. Pass the same reachable address on every node{f', one of {choice}' if choice else ''}."
    )


def _resolve(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _is_local_by_name(host: str) -> bool:
    """True for a loopback address, and for names that resolve to one on every host."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    name = host.rstrip(".").lower()
    return name.endswith(".localhost") or name in ("localhost", "localhost.localdomain", "ip6-localhost")
