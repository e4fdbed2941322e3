"""Two ranks of one process hand a NumPy array over through a TCP store, and torch looks at the same memory."""

import threading

import numpy as np
import torch

import hookline as hl


def work(port: int, result: "hl.Future[hl.Tensor]") -> None:
    """Rank 1: waits for the array, and completes the future with it."""
    store = hl.TCPStore("127.0.0.1", port, timeout=10.0)
    array = np.frombuffer(bytearray(store.get("gradient")), np.float32)
    result.set_result(hl.from_dlpack(array))


# Port 0 asks for a free port. The server listens on the named address only.
store = hl.TCPStore("127.0.0.1", 0, is_master=True, timeout=10.0)
print("rank 0 keeps", store)

received: "hl.Future[hl.Tensor]" = hl.Future()
rank1 = threading.Thread(target=work, args=(store.port, received))
rank1.start()

gradient = np.arange(6, dtype=np.float32)
store.set("gradient", gradient.tobytes())
print("rank 0 sent", gradient)

tensor = received.wait(timeout=10.0)
print("rank 1 has", tensor)
torch.from_dlpack(tensor).mul_(10)  # no copy: Hookline and NumPy see what torch writes
print("after torch has written to it:", tensor.numpy())
rank1.join()

try:
    store.wait(["a key that never comes"], timeout=0.05)
except hl.Timeout as error:
    print("and a wait ends:", error)
