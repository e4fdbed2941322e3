// Packs tensors into two buffers in turn and broadcasts them in order.
#include <hookline/reducer/broadcast_coalesced.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "core/hash.hpp"
#include "core/note.hpp"
#include "core/read_only.hpp"
#include "kernel/copy.hpp"
#include "reducer/by_allreduce.hpp"

namespace hookline {
namespace {

constexpr std::size_t kInFlight = 2;
/// From here on packing costs more than an operation of its own.
constexpr std::size_t kLarge = std::size_t{1} << 20;

// The same on ranks whose tensors agree in shape and dtype.
std::uint64_t layout_note(const std::vector<Tensor>& tensors) {
  std::uint64_t hash = core::kHashOfNothing;
  const auto add = [&](std::uint64_t value) { hash = core::hash_on(hash, value); };
  for (const Tensor& t : tensors) {
    add(static_cast<std::uint64_t>(t.dtype()));
    add(t.dim());
    for (const std::int64_t extent : t.shape()) add(static_cast<std::uint64_t>(extent));
  }
  return core::content_note(hash);
}

class Broadcast {
 public:
  /// Tensors of `large` bytes or more are sent from where they lie, in pieces of at most `piece`; the others in buffers
  /// of `buffer` bytes.
  Broadcast(ProcessGroup& group, std::size_t piece, std::size_t large, std::size_t buffer, int root)
      : group_(group), piece_(piece), large_(large), size_(buffer), root_(root), sends_(group.rank() == root) {}

  void add(const Tensor& tensor) {
    if (tensor.nbytes() == 0) return;
    // Elsewhere than at the root only the memory matters; a copy is written back when it has come.
    const Tensor flat =
        tensor.is_contiguous() ? tensor : (sends_ ? tensor.clone() : Tensor::empty(tensor.shape(), tensor.dtype()));
    if (flat.nbytes() >= large_) {
      flush();
      for (std::size_t at = 0; at < flat.nbytes(); at += piece_) {
        const std::size_t bytes = std::min(piece_, flat.nbytes() - at);
        start(Tensor::wrap(flat.mutable_bytes() + at, {static_cast<std::int64_t>(bytes)}, DType::u8,
                           {.owner = flat.owner()}),
              {});
      }
    } else {
      if (used_ + flat.nbytes() > size_) flush();
      if (!packing_.owner()) packing_ = next_buffer();
      std::byte* const place = packing_.mutable_bytes() + used_;
      if (sends_) kernel::copy(place, flat.bytes(), flat.nbytes());
      else unpack_.emplace_back([flat, place] { kernel::copy(flat.mutable_bytes(), place, flat.nbytes()); });
      used_ += flat.nbytes();
    }
    if (!tensor.is_contiguous() && !sends_) strided_.emplace_back(tensor, flat);
  }

  void finish() {
    flush();
    while (!under_way_.empty()) wait_for_oldest();
    for (const auto& [tensor, copy] : strided_) tensor.copy_from(copy);
  }

 private:
  struct Operation {
    WorkPtr work;
    std::vector<std::function<void()>> unpack;
  };

  // Buffers take turns: when one is asked for again, the operation before the last has been waited for.
  Tensor next_buffer() {
    while (under_way_.size() >= kInFlight) wait_for_oldest();
    Tensor& buffer = buffers_[turn_++ % kInFlight];
    if (!buffer.owner()) buffer = group_.empty({static_cast<std::int64_t>(size_)}, DType::u8);
    return buffer;
  }

  void flush() {
    if (used_ == 0) return;
    start(packing_.slice(0, 0, static_cast<std::int64_t>(used_)), std::exchange(unpack_, {}));
    packing_ = {};
    used_ = 0;
  }

  void start(const Tensor& bytes, std::vector<std::function<void()>> unpack) {
    while (under_way_.size() >= kInFlight) wait_for_oldest();
    under_way_.push_back({reducer::broadcast(group_, bytes, root_), std::move(unpack)});
  }

  void wait_for_oldest() {
    const Operation oldest = std::move(under_way_.front());
    under_way_.pop_front();
    oldest.work->wait();
    for (const auto& step : oldest.unpack) step();
  }

  ProcessGroup& group_;
  const std::size_t piece_;
  const std::size_t large_;
  const std::size_t size_;
  const int root_;
  const bool sends_;
  std::array<Tensor, kInFlight> buffers_;
  std::size_t turn_ = 0;
  Tensor packing_;
  std::size_t used_ = 0;
  std::vector<std::function<void()>> unpack_;
  std::deque<Operation> under_way_;
  std::vector<std::pair<Tensor, Tensor>> strided_;
};

}  // namespace

void broadcast_coalesced(ProcessGroup& group, const std::vector<Tensor>& tensors, std::size_t buffer_size, int root) {
  if (buffer_size == 0) throw InvalidArgument("broadcast_coalesced: buffer_size must be at least 1 byte");
  if (root < 0 || root >= group.size()) {
    throw InvalidArgument(fmt::format("broadcast_coalesced: root {} of a group of {}", root, group.size()));
  }
  const std::size_t large = std::min(buffer_size, kLarge);
  std::size_t packed = 0;
  for (const Tensor& t : tensors) {
    if (t.read_only()) {
      throw InvalidArgument(
          fmt::format("broadcast_coalesced: {} cannot be written to; {}", to_string(t), core::kPassWritableCopy));
    }
    if (t.nbytes() < large) packed += t.nbytes();
  }
  CallContext context = current_context();
  context.note = layout_note(tensors);
  const ContextScope scope(std::move(context));
  Broadcast broadcast(group, buffer_size, large, std::min(buffer_size, packed), root);
  for (const Tensor& t : tensors) broadcast.add(t);
  broadcast.finish();
}

}  // namespace hookline
