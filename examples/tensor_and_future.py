"""NumPy, torch and Hookline look at the same memory, and a future hands a tensor on when it is there."""

import threading

import numpy as np
import torch

import hookline as hl

array = np.arange(6, dtype=np.float32).reshape(2, 3)
tensor = hl.from_dlpack(array)
print("from NumPy:", tensor)

view = torch.from_dlpack(tensor)
view *= 10
print("torch wrote into it, and NumPy sees:", array.tolist())

future = hl.Future()
scaled = future.then(lambda done: done.value().numpy().sum().item())
threading.Thread(target=future.set_result, args=(tensor,)).start()
print("the sum, from another thread:", scaled.wait())

try:
    hl.Future().wait(0.05)
except hl.Timeout as error:
    print("and a wait ends:", error)
