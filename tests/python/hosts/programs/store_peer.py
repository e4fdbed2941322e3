"""A process of a TCP store between hosts: prints "ready", then runs the action in its last argument."""

import sys
import time

import hookline as hl

host, port, task = sys.argv[1], int(sys.argv[2]), sys.argv[3]
# Two connections: that of the server itself, and one client.
limits = {"max_connections": 2, "keepalive": 1}


def connect(timeout: float = 30) -> hl.TCPStore:
    return hl.TCPStore(host, port, timeout=timeout, keepalive=1)


if task == "serve":
    store = hl.TCPStore(host, port, is_master=True, timeout=30, **limits)
    print("ready", flush=True)
    sys.stdin.read()
elif task == "idle":
    store = connect()
    print("ready", flush=True)
    sys.stdin.read()
elif task == "wait":
    store = connect()
    print("ready", flush=True)
    try:
        store.wait(["never"], 80)
    except hl.Error as error:
        print(type(error).__name__, flush=True)
elif task == "connect":
    print("ready", flush=True)
    end = time.monotonic() + 60
    while True:
        try:
            connect().ping()
            break
        except hl.ResourceError as error:
            if "max_connections" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.1)
    print("served", flush=True)
