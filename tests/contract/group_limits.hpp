// Operations that tests run on groups of 64 ranks.
#pragma once

#include "contract/group_contract.hpp"

namespace hookline::testing {

inline void try_64_ranks(ProcessGroup& group) {
  for (const Layout layout : {Layout::plain, Layout::shared}) {
    for (const std::int64_t count : {std::int64_t{5}, kChunk / 4 + 1}) {
      const Tensor t = make(group, count, DType::f32, layout);
      fill(t, group.rank());
      group.allreduce(t)->wait();
      expect(t, expected_reduction(t, ReduceOp::sum, 64), "allreduce");
    }
  }
  const Tensor own = Tensor::full({3}, group.rank());
  const Tensor all = Tensor::zeros({64 * 3});
  group.allgather_into_tensor(all, own)->wait();
  for (int r = 0; r < 64; ++r) EXPECT_EQ(all.data<float>()[3 * r + 2], static_cast<float>(r));
  const WorkPtr sent = group.send(own, (group.rank() + 1) % 64);
  const Tensor received = Tensor::zeros({3});
  group.recv(received, (group.rank() + 63) % 64)->wait();
  EXPECT_EQ(received.data<float>()[0], static_cast<float>((group.rank() + 63) % 64));
  sent->wait();
  group.barrier()->wait();
}

}  // namespace hookline::testing
