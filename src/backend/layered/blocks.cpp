// allgather and reduce_scatter on hosts with equal numbers of ranks.
#include <algorithm>

#include "backend/layered/run.hpp"

namespace hookline::layered {
namespace {

// The chunk size of each rank's block, which limits the scratch memory.
constexpr std::size_t kPieceBytes = 256 * 1024;

}  // namespace

// The owners of a slice gather their blocks between hosts; then the ranks of a host gather the results.
void Run::allgather() {
  const std::size_t hosts = topology_.hosts.size();
  const std::size_t places = topology_.slices;
  const std::size_t most = std::min(parts_.block_bytes, kPieceBytes);
  const Tensor memory = scratch_.shared(*levels_.inner, most * (1 + hosts + hosts * places), DType::u8);
  for (std::size_t at = 0; at < parts_.block_bytes; at += most) {
    const auto part = static_cast<std::int64_t>(std::min(most, parts_.block_bytes - at));
    const auto h = static_cast<std::int64_t>(hosts);
    const Tensor own = memory.slice(0, 0, part);
    const Tensor of_slice = memory.slice(0, part, part * (1 + h));
    const Tensor all = memory.slice(0, part * (1 + h), part * (1 + h + h * static_cast<std::int64_t>(places)));
    const auto bytes = static_cast<std::size_t>(part);
    parts_.give[0].read(at, bytes, own.mutable_bytes());
    wait_between(start(*levels_.slice, OpType::allgather_into_tensor, {own}, {of_slice}));
    inside(OpType::allgather_into_tensor, {of_slice}, {all});
    for (std::size_t host = 0; host < hosts; ++host) {
      for (std::size_t place = 0; place < places; ++place) {
        const std::byte* const block = all.bytes() + (place * hosts + host) * bytes;
        const auto rank = static_cast<std::size_t>(topology_.hosts[host][place]);
        parts_.take[rank].write(at, bytes, block);
      }
    }
  }
}

// Each rank reduces the blocks of its slice's owners over its host; then the owners reduce between hosts.
void Run::reduce_scatter() {
  const std::size_t hosts = topology_.hosts.size();
  const std::size_t places = topology_.slices;
  const std::size_t itemsize = size_of(parts_.dtype);
  const std::size_t most = std::min(parts_.block_bytes, kPieceBytes) / itemsize;
  const Tensor memory = scratch_.shared(*levels_.inner, most * (1 + hosts + hosts * places), parts_.dtype);
  const std::size_t count = parts_.block_bytes / itemsize;
  for (std::size_t at = 0; at < count; at += most) {
    const auto part = static_cast<std::int64_t>(std::min(most, count - at));
    const auto h = static_cast<std::int64_t>(hosts);
    const Tensor own = memory.slice(0, 0, part);
    const Tensor of_slice = memory.slice(0, part, part * (1 + h));
    const Tensor all = memory.slice(0, part * (1 + h), part * (1 + h + h * static_cast<std::int64_t>(places)));
    const std::size_t bytes = static_cast<std::size_t>(part) * itemsize;
    for (std::size_t host = 0; host < hosts; ++host) {
      for (std::size_t place = 0; place < places; ++place) {
        std::byte* const block = all.mutable_bytes() + (place * hosts + host) * bytes;
        const auto rank = static_cast<std::size_t>(topology_.hosts[host][place]);
        parts_.give[rank].read(at * itemsize, bytes, block);
      }
    }
    inside(OpType::reduce_scatter_tensor, {all}, {of_slice}, first_op());
    wait_between(start(*levels_.slice, OpType::reduce_scatter_tensor, {of_slice}, {own}, second_op()));
    finish_mean(own);
    parts_.take[0].write(at * itemsize, bytes, own.bytes());
  }
}

}  // namespace hookline::layered
