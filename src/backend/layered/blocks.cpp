// Collectives of a block from or for each rank, where every host has as many ranks.
#include <algorithm>

#include "backend/layered/run.hpp"
#include "kernel/copy.hpp"

namespace hookline::layered {
namespace {

// Of each rank's block, so that the memory in between stays small.
constexpr std::size_t kPieceBytes = 256 * 1024;

}  // namespace

// Counterparts exchange their blocks; then the ranks of a host exchange what they got.
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
    parts_.give[0].for_each(at, bytes, [&](const std::byte* data, std::size_t n, std::size_t position) {
      kernel::copy(own.mutable_bytes() + position, data, n);
    });
    wait_between(start(*levels_.slice, OpType::allgather_into_tensor, {own}, {of_slice}));
    inside(OpType::allgather_into_tensor, {of_slice}, {all});
    for (std::size_t host = 0; host < hosts; ++host) {
      for (std::size_t place = 0; place < places; ++place) {
        const std::byte* const block = all.bytes() + (place * hosts + host) * bytes;
        const auto rank = static_cast<std::size_t>(topology_.hosts[host][place]);
        parts_.take[rank].for_each(at, bytes, [&](std::byte* out, std::size_t n, std::size_t position) {
          kernel::copy(out, block + position, n);
        });
      }
    }
  }
}

// Each rank reduces what the ranks of its host have for it and for its counterparts; those reduce theirs.
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
        parts_.give[rank].for_each(at * itemsize, bytes,
                                   [&](const std::byte* data, std::size_t n, std::size_t position) {
                                     kernel::copy(block + position, data, n);
                                   });
      }
    }
    inside(OpType::reduce_scatter_tensor, {all}, {of_slice}, first_op());
    wait_between(start(*levels_.slice, OpType::reduce_scatter_tensor, {of_slice}, {own}, second_op()));
    finish_mean(own);
    parts_.take[0].for_each(at * itemsize, bytes, [&](std::byte* out, std::size_t n, std::size_t position) {
      kernel::copy(out, own.bytes() + position, n);
    });
  }
}

}  // namespace hookline::layered
