// Fallback collectives built on allreduce with zeros from the other ranks.
#include "reducer/fallback_collectives.hpp"

#include <cstring>

#include <hookline/core/error.hpp>

namespace hookline::reducer {

WorkPtr broadcast(ProcessGroup& group, const Tensor& tensor, int root) {
  try {
    const BroadcastOptions options{.root = root};
    return group.broadcast(tensor, options);
  } catch (const Unsupported&) {
    if (group.rank() != root) tensor.fill(0);
    return group.allreduce(tensor);
  }
}

WorkPtr allgather_into_tensor(ProcessGroup& group, const Tensor& output, const Tensor& input) {
  try {
    return group.allgather_into_tensor(output, input);
  } catch (const Unsupported&) {
    output.fill(0);
    std::memcpy(output.mutable_bytes() + static_cast<std::size_t>(group.rank()) * input.nbytes(), input.bytes(),
                input.nbytes());
    return group.allreduce(output);
  }
}

}  // namespace hookline::reducer
