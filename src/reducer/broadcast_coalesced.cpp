// broadcast_coalesced: packs tensors into two alternating buffers and broadcasts them in order.
#include <hookline/reducer/broadcast_coalesced.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "core/hash.hpp"
#include "core/op_tag.hpp"
#include "core/read_only.hpp"
#include "kernel/copy.hpp"
#include "reducer/fallback_collectives.hpp"

namespace hookline {
namespace {

constexpr std::size_t kMaxInFlight = 2;
/// Tensors of at least this size are not packed: copying costs more than a separate operation.
constexpr std::size_t kMinUnpackedBytes = std::size_t{1} << 20;

// Returns a hash that is equal on ranks whose tensors have equal shapes and dtypes.
std::uint64_t layout_tag(const std::vector<Tensor>& tensors) {
  std::uint64_t hash = core::kFnvOffsetBasis;
  const auto add = [&](std::uint64_t value) { hash = core::hash_combine(hash, value); };
  for (const Tensor& t : tensors) {
    add(static_cast<std::uint64_t>(t.dtype()));
    add(t.dim());
    for (const std::int64_t extent : t.shape()) add(static_cast<std::uint64_t>(extent));
  }
  return core::content_tag(hash);
}

class CoalescedBroadcast {
 public:
  /// Sends tensors of at least `min_unpacked_bytes` in place, in chunks of at most `chunk_bytes`, and packs others into
  /// buffers of `buffer_bytes`.
  CoalescedBroadcast(ProcessGroup& group, std::size_t chunk_bytes, std::size_t min_unpacked_bytes,
                     std::size_t buffer_bytes, int root)
      : group_(group),
        chunk_bytes_(chunk_bytes),
        min_unpacked_bytes_(min_unpacked_bytes),
        buffer_bytes_(buffer_bytes),
        root_(root),
        is_root_(group.rank() == root) {}

  void add(const Tensor& tensor) {
    if (tensor.nbytes() == 0) return;
    // On other ranks than the root the contents do not matter; the copy is written back at the end.
    const Tensor flat =
        tensor.is_contiguous() ? tensor : (is_root_ ? tensor.clone() : Tensor::empty(tensor.shape(), tensor.dtype()));
    if (flat.nbytes() >= min_unpacked_bytes_) {
      flush();
      for (std::size_t at = 0; at < flat.nbytes(); at += chunk_bytes_) {
        const std::size_t bytes = std::min(chunk_bytes_, flat.nbytes() - at);
        start(Tensor::wrap(flat.mutable_bytes() + at, {static_cast<std::int64_t>(bytes)}, DType::u8,
                           {.owner = flat.owner()}),
              {});
      }
    } else {
      if (packed_bytes_ + flat.nbytes() > buffer_bytes_) flush();
      if (!pack_buffer_.owner()) pack_buffer_ = next_buffer();
      std::byte* const packed = pack_buffer_.mutable_bytes() + packed_bytes_;
      if (is_root_) kernel::copy(packed, flat.bytes(), flat.nbytes());
      else unpack_.emplace_back([flat, packed] { kernel::copy(flat.mutable_bytes(), packed, flat.nbytes()); });
      packed_bytes_ += flat.nbytes();
    }
    if (!tensor.is_contiguous() && !is_root_) strided_.emplace_back(tensor, flat);
  }

  void finish() {
    flush();
    while (!in_flight_.empty()) wait_for_oldest();
    for (const auto& [tensor, copy] : strided_) tensor.copy_from(copy);
  }

 private:
  struct InFlight {
    WorkPtr work;
    std::vector<std::function<void()>> unpack;
  };

  // Double buffering: before a buffer is reused, the operation that used it has been waited for.
  Tensor next_buffer() {
    while (in_flight_.size() >= kMaxInFlight) wait_for_oldest();
    Tensor& buffer = buffers_[num_buffers_used_++ % kMaxInFlight];
    if (!buffer.owner()) buffer = group_.empty({static_cast<std::int64_t>(buffer_bytes_)}, DType::u8);
    return buffer;
  }

  void flush() {
    if (packed_bytes_ == 0) return;
    start(pack_buffer_.slice(0, 0, static_cast<std::int64_t>(packed_bytes_)), std::exchange(unpack_, {}));
    pack_buffer_ = {};
    packed_bytes_ = 0;
  }

  void start(const Tensor& bytes, std::vector<std::function<void()>> unpack) {
    while (in_flight_.size() >= kMaxInFlight) wait_for_oldest();
    in_flight_.push_back({reducer::broadcast(group_, bytes, root_), std::move(unpack)});
  }

  void wait_for_oldest() {
    const InFlight oldest = std::move(in_flight_.front());
    in_flight_.pop_front();
    oldest.work->wait();
    for (const auto& step : oldest.unpack) step();
  }

  ProcessGroup& group_;
  const std::size_t chunk_bytes_;
  const std::size_t min_unpacked_bytes_;
  const std::size_t buffer_bytes_;
  const int root_;
  const bool is_root_;
  std::array<Tensor, kMaxInFlight> buffers_;
  std::size_t num_buffers_used_ = 0;
  Tensor pack_buffer_;
  std::size_t packed_bytes_ = 0;
  std::vector<std::function<void()>> unpack_;
  std::deque<InFlight> in_flight_;
  std::vector<std::pair<Tensor, Tensor>> strided_;
};

}  // namespace

void broadcast_coalesced(ProcessGroup& group, const std::vector<Tensor>& tensors, std::size_t buffer_size, int root) {
  if (buffer_size == 0) throw InvalidArgument("broadcast_coalesced: buffer_size must be at least 1 byte");
  if (root < 0 || root >= group.size()) {
    throw InvalidArgument(
        fmt::format("broadcast_coalesced on rank {} of {}: root is out of range: expected 0 to {}, got {}",
                    group.rank(), group.size(), group.size() - 1, root));
  }
  const std::size_t min_unpacked_bytes = std::min(buffer_size, kMinUnpackedBytes);
  std::size_t packed_bytes = 0;
  for (const Tensor& t : tensors) {
    if (t.read_only()) {
      throw InvalidArgument(
          fmt::format("broadcast_coalesced: the tensor {} is read-only; {}", to_string(t), core::kPassWritableCopy));
    }
    if (t.nbytes() < min_unpacked_bytes) packed_bytes += t.nbytes();
  }
  CallContext context = current_context();
  context.op_tag = layout_tag(tensors);
  const ContextScope scope(std::move(context));
  CoalescedBroadcast broadcast(group, buffer_size, min_unpacked_bytes, std::min(buffer_size, packed_bytes), root);
  for (const Tensor& t : tensors) broadcast.add(t);
  broadcast.finish();
}

}  // namespace hookline
