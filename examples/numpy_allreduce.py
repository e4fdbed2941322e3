"""Collectives on NumPy arrays. Run it on several ranks: hookline run -n 2 examples/numpy_allreduce.py"""

import numpy as np

import hookline as hl

group = hl.init_process_group()  # env://; shared memory on one host
x = np.full(1000, group.rank() + 1, np.float32)
group.allreduce([x]).wait()  # in place; sum
work = group.allreduce([x], op=hl.ReduceOp.AVG, timeout=5.0)  # or opts=hl.AllreduceOptions(reduceOp=…, timeout=…)
work.get_future().then(lambda f: print(f.value()[0][:3]))
work.wait()
y = group.empty((1024, 1024), "float32")  # a NumPy-compatible tensor in the group's shared memory
group.broadcast([y], root=0).wait()
group.barrier().wait()
out = np.empty((group.size(), 1000), np.float32)
group.allgather_into_tensor(out, x).wait()
