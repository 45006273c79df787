"""Closes the network but for loopback; a Python that has this folder on its path imports it at its start.

An audit hook cannot be removed or worked round from Python. Names under `.invalid` fail as a resolver lets
them fail (RFC 6761), so that tests can have a host that does not exist.
"""

import ipaddress
import socket
import sys


class NetworkClosedError(RuntimeError):
    """A test tried to reach beyond this machine."""


def _refuse_what_is_not_here(event: str, arguments: tuple[object, ...]) -> None:
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event in {"socket.connect", "socket.sendto", "socket.sendmsg"}:
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) and address else None
    else:
        return
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    # What is no text is no host: a Unix socket, a netlink address, "any" of getaddrinfo.
    if not isinstance(host, str) or host in {"", "localhost", socket.gethostname()}:
        return
    if host.rstrip(".").endswith(".invalid"):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    try:
        here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    if not here:
        raise NetworkClosedError(f"{event} to {host!r}: tests speak to this machine only")


sys.addaudithook(_refuse_what_is_not_here)
