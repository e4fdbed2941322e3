// Sends large messages in chunks, and receives messages of any size.
#include "backend/engine/letters.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/engine/station.hpp"

namespace hookline::engine {
namespace {

constexpr int kDataChannel = 1;
constexpr std::uint64_t kWindow = 4;  // chunks of a message with a posted receive

std::string in_words(std::uint64_t bytes, std::uint32_t dtype) {
  if (dtype > static_cast<std::uint32_t>(DType::boolean)) return fmt::format("{} bytes of an unknown dtype", bytes);
  const auto known = static_cast<DType>(dtype);
  return fmt::format("{} {}", bytes / size_of(known), name(known));
}

}  // namespace

SendOperation::SendOperation(std::shared_ptr<Station> station, Milliseconds timeout, Collective&& what)
    : Operation(std::move(station), timeout, std::move(what)), data_(collective().inputs[0].contiguous()) {}

void SendOperation::post(std::uint64_t first_number) {
  number_ = first_number;
  for (std::size_t at = 0; at < data_.nbytes(); at += kDataBytes) {
    messages_.push_back(station().engine().send(target(), {kDataChannel, first_number + messages_.size()},
                                                data_.bytes() + at, std::min(kDataBytes, data_.nbytes() - at)));
  }
}

std::string SendOperation::describe() const {
  return fmt::format("send of {} {} to rank {}, tag {}", data_.numel(), name(data_.dtype()), target(),
                     collective().tag);
}

void SendOperation::drive() {
  station().mail().wait_until([&] { return over(); }, *this);
}

ReceiveOperation::ReceiveOperation(std::shared_ptr<Station> station, Milliseconds timeout, Collective&& what)
    : Operation(std::move(station), timeout, std::move(what)),
      target_(collective().outputs[0]),
      buffer_(target_.is_contiguous() ? target_ : Tensor::empty(target_.shape(), target_.dtype())) {}

bool ReceiveOperation::wants(int source, int tag) const noexcept {
  return tag == collective().tag && (collective().type == OpType::recv_anysource || source == collective().root);
}

std::string ReceiveOperation::describe() const {
  const bool any = collective().type == OpType::recv_anysource;
  return fmt::format("{} of {} {}{}, tag {}", name(collective().type), target_.numel(), name(target_.dtype()),
                     any ? "" : fmt::format(" from rank {}", collective().root), collective().tag);
}

void ReceiveOperation::check(const Envelope& envelope) const {
  if (envelope.bytes == target_.nbytes() && envelope.dtype == static_cast<std::uint32_t>(target_.dtype())) return;
  throw Mismatch(fmt::format("{}: message mismatch: expected {}, got {} from rank {}", station().context(describe()),
                             in_words(target_.nbytes(), static_cast<std::uint32_t>(target_.dtype())),
                             in_words(envelope.bytes, envelope.dtype), source_),
                 {source_});
}

void ReceiveOperation::take(int source, const Envelope& envelope, const std::byte* data) {
  source_ = source;
  check(envelope);
  if (envelope.bytes > 0) std::memcpy(buffer_.mutable_bytes(), data, envelope.bytes);
  if (!target_.is_contiguous()) target_.copy_from(buffer_);
}

void ReceiveOperation::begin(int source, const Envelope& envelope) {
  source_ = source;
  envelope_ = envelope;
  parts_ = (envelope.bytes + kDataBytes - 1) / kDataBytes;
  try {
    check(envelope);
  } catch (const Mismatch&) {  // the data is received and discarded, so that the send completes
    mismatch_ = std::current_exception();
    discarded_.resize(kDataBytes);
  }
  in_lane_ = true;
}

// Receives chunk by chunk. The number of posted receives follows from the sizes alone.
bool ReceiveOperation::step() {
  for (; posted_ < parts_ || !messages_.empty();) {
    while (posted_ < parts_ && messages_.size() < (mismatch_ ? 1 : kWindow)) {
      const std::uint64_t at = posted_ * kDataBytes;
      std::byte* const to = mismatch_ ? discarded_.data() : buffer_.mutable_bytes() + at;
      turn_to(source_);
      messages_.push_back(station().engine().receive(source_, {kDataChannel, envelope_.number + posted_}, to,
                                                     std::min<std::uint64_t>(kDataBytes, envelope_.bytes - at)));
      ++posted_;
    }
    if (!through(messages_.front(), source_)) return false;
    messages_.erase(messages_.begin());
  }
  station().outbox().tell(source_, {.kind = MailKind::received, .number = envelope_.number}, nullptr);
  if (mismatch_) std::rethrow_exception(mismatch_);
  if (!target_.is_contiguous()) target_.copy_from(buffer_);
  return true;
}

void ReceiveOperation::finish(std::exception_ptr error) {
  messages_.clear();
  station().mail().finish(*this, std::move(error));
}

std::exception_ptr ReceiveOperation::time_up() {
  messages_.clear();
  return station().not_in_time(*this, {source_});
}

void ReceiveOperation::drive() {
  station().mail().wait_until([&] { return over() || in_lane(); }, *this);
  if (over()) return;
  station().mail().incoming().drive_until([&] { return over(); }, [&] { return deadline(); });
}

void ReceiveOperation::hurry() {
  if (in_lane()) station().mail().incoming().hurry();
}

}  // namespace hookline::engine
