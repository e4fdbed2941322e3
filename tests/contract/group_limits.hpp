// Operations that tests run on large groups.
#pragma once

#include <fmt/format.h>

#include "contract/group_contract.hpp"

namespace hookline::testing {

inline void check_large_group(ProcessGroup& group) {
  const int ranks = group.size();
  for (const Layout layout : {Layout::plain, Layout::shared}) {
    for (const std::int64_t count : {std::int64_t{5}, kChunkBytes / 4 + 1}) {
      const Tensor t = make_tensor(group, count, DType::f32, layout);
      float* const data = t.data<float>();
      for (std::int64_t i = 0; i < count; ++i) data[i] = static_cast<float>(group.rank() + i % 251);
      group.allreduce(t)->wait();
      const std::int64_t sum_of_ranks = std::int64_t{ranks} * (ranks - 1) / 2;
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < count; ++i)
        wrong += data[i] != static_cast<float>(sum_of_ranks + ranks * (i % 251)) ? 1 : 0;
      require(wrong == 0, fmt::format("allreduce: {} of {} elements are wrong", wrong, count));
    }
  }
  const Tensor own = Tensor::full({3}, group.rank());
  const Tensor all = Tensor::zeros({ranks * 3});
  group.allgather_into_tensor(all, own)->wait();
  for (int r = 0; r < ranks; ++r) EXPECT_EQ(all.data<float>()[3 * r + 2], static_cast<float>(r));
  const Tensor input = Tensor::zeros({ranks});
  const Tensor output = Tensor::zeros({ranks});
  for (int r = 0; r < ranks; ++r) input.data<float>()[r] = static_cast<float>(ranks * group.rank() + r);
  group.alltoall_base(output, input)->wait();
  for (int r = 0; r < ranks; ++r) EXPECT_EQ(output.data<float>()[r], static_cast<float>(ranks * r + group.rank()));
  const WorkPtr sent = group.send(own, (group.rank() + 1) % ranks);
  const Tensor received = Tensor::zeros({3});
  group.recv(received, (group.rank() + ranks - 1) % ranks)->wait();
  EXPECT_EQ(received.data<float>()[0], static_cast<float>((group.rank() + ranks - 1) % ranks));
  sent->wait();
  group.barrier()->wait();
}

}  // namespace hookline::testing
