// allgather and reduce_scatter on hosts with equal numbers of ranks.
#include <algorithm>

#include "backend/hierarchical/hierarchical_op.hpp"

namespace hookline::hierarchical {
namespace {

// The chunk size of each rank's block, which limits the scratch memory.
constexpr std::size_t kChunkBytes = 256 * 1024;

}  // namespace

// The owners of a slice gather their blocks between hosts; then the ranks of a host gather the results.
void HierarchicalOp::allgather() {
  const std::size_t hosts = topology_.hosts.size();
  const std::size_t ranks_per_host = topology_.slices;
  const std::size_t max_bytes = std::min(layout_.block_bytes, kChunkBytes);
  const Tensor memory =
      scratch_.shared(*sub_backends_.intra_host, max_bytes * (1 + hosts + hosts * ranks_per_host), DType::u8);
  for (std::size_t offset = 0; offset < layout_.block_bytes; offset += max_bytes) {
    const auto chunk = static_cast<std::int64_t>(std::min(max_bytes, layout_.block_bytes - offset));
    const auto h = static_cast<std::int64_t>(hosts);
    const Tensor own = memory.slice(0, 0, chunk);
    const Tensor inter_host_blocks = memory.slice(0, chunk, chunk * (1 + h));
    const Tensor all =
        memory.slice(0, chunk * (1 + h), chunk * (1 + h + h * static_cast<std::int64_t>(ranks_per_host)));
    const auto bytes = static_cast<std::size_t>(chunk);
    layout_.send_blocks[0].read(offset, bytes, own.mutable_bytes());
    wait_inter_host(start(*sub_backends_.inter_host, OpType::allgather_into_tensor, {own}, {inter_host_blocks}));
    run_intra_host(OpType::allgather_into_tensor, {inter_host_blocks}, {all});
    for (std::size_t host = 0; host < hosts; ++host) {
      for (std::size_t local_rank = 0; local_rank < ranks_per_host; ++local_rank) {
        const std::byte* const block = all.bytes() + (local_rank * hosts + host) * bytes;
        const auto rank = static_cast<std::size_t>(topology_.hosts[host][local_rank]);
        layout_.recv_blocks[rank].write(offset, bytes, block);
      }
    }
  }
}

// Reduce-scatter inside each host, then between hosts. The first leaves local rank i with the host's sums of the blocks
// of every host's local rank i.
void HierarchicalOp::reduce_scatter() {
  const std::size_t hosts = topology_.hosts.size();
  const std::size_t ranks_per_host = topology_.slices;
  const std::size_t itemsize = size_of(layout_.dtype);
  const std::size_t max_count = std::min(layout_.block_bytes, kChunkBytes) / itemsize;
  const Tensor memory =
      scratch_.shared(*sub_backends_.intra_host, max_count * (1 + hosts + hosts * ranks_per_host), layout_.dtype);
  const std::size_t count = layout_.block_bytes / itemsize;
  for (std::size_t offset = 0; offset < count; offset += max_count) {
    const auto chunk = static_cast<std::int64_t>(std::min(max_count, count - offset));
    const auto h = static_cast<std::int64_t>(hosts);
    const Tensor own = memory.slice(0, 0, chunk);
    const Tensor inter_host_blocks = memory.slice(0, chunk, chunk * (1 + h));
    const Tensor all =
        memory.slice(0, chunk * (1 + h), chunk * (1 + h + h * static_cast<std::int64_t>(ranks_per_host)));
    const std::size_t bytes = static_cast<std::size_t>(chunk) * itemsize;
    for (std::size_t host = 0; host < hosts; ++host) {
      for (std::size_t local_rank = 0; local_rank < ranks_per_host; ++local_rank) {
        std::byte* const block = all.mutable_bytes() + (local_rank * hosts + host) * bytes;
        const auto rank = static_cast<std::size_t>(topology_.hosts[host][local_rank]);
        layout_.send_blocks[rank].read(offset * itemsize, bytes, block);
      }
    }
    run_intra_host(OpType::reduce_scatter_tensor, {all}, {inter_host_blocks}, intra_host_op());
    wait_inter_host(
        start(*sub_backends_.inter_host, OpType::reduce_scatter_tensor, {inter_host_blocks}, {own}, inter_host_op()));
    divide_by_size(own);
    layout_.recv_blocks[0].write(offset * itemsize, bytes, own.bytes());
  }
}

}  // namespace hookline::hierarchical
