// Sends large messages in chunks, and receives messages of any size.
#include "backend/p2p/p2p_ops.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/p2p/p2p_context.hpp"

namespace hookline::p2p {
namespace {

constexpr int kDataChannel = 1;
constexpr std::uint64_t kRecvWindow = 4;  // chunks of a message with a posted receive

std::string describe_payload(std::uint64_t bytes, std::uint32_t dtype) {
  if (dtype > static_cast<std::uint32_t>(DType::boolean)) return fmt::format("{} bytes of an unknown dtype", bytes);
  const auto known = static_cast<DType>(dtype);
  return fmt::format("{} {}", bytes / size_of(known), name(known));
}

}  // namespace

SendOp::SendOp(std::shared_ptr<P2PContext> context, Milliseconds timeout, Operation&& arguments)
    : TransportOp(std::move(context), timeout, std::move(arguments)), data_(operation().inputs[0].contiguous()) {}

void SendOp::post(std::uint64_t first_sequence) {
  data_sequence_ = first_sequence;
  for (std::size_t offset = 0; offset < data_.nbytes(); offset += kDataChunkBytes) {
    requests_.push_back(context().transport().send(target(), {kDataChannel, first_sequence + requests_.size()},
                                                   data_.bytes() + offset,
                                                   std::min(kDataChunkBytes, data_.nbytes() - offset)));
  }
}

std::string SendOp::describe() const {
  return fmt::format("send of {} {} to rank {}, tag {}", data_.numel(), name(data_.dtype()), target(), operation().tag);
}

void SendOp::drive() {
  context().control_channel().wait_until([&] { return done(); }, *this);
}

RecvOp::RecvOp(std::shared_ptr<P2PContext> context, Milliseconds timeout, Operation&& arguments)
    : TransportOp(std::move(context), timeout, std::move(arguments)),
      target_(operation().outputs[0]),
      buffer_(target_.is_contiguous() ? target_ : Tensor::empty(target_.shape(), target_.dtype())) {}

bool RecvOp::matches(int source, int tag) const noexcept {
  return tag == operation().tag && (operation().type == OpType::recv_anysource || source == operation().root);
}

std::string RecvOp::describe() const {
  const bool any = operation().type == OpType::recv_anysource;
  return fmt::format("{} of {} {}{}, tag {}", name(operation().type), target_.numel(), name(target_.dtype()),
                     any ? "" : fmt::format(" from rank {}", operation().root), operation().tag);
}

void RecvOp::check_envelope(const Envelope& envelope) const {
  if (envelope.bytes == target_.nbytes() && envelope.dtype == static_cast<std::uint32_t>(target_.dtype())) return;
  throw Mismatch(
      fmt::format("{}: message mismatch: expected {}, got {} from rank {}", context().error_prefix(describe()),
                  describe_payload(target_.nbytes(), static_cast<std::uint32_t>(target_.dtype())),
                  describe_payload(envelope.bytes, envelope.dtype), source_),
      {source_});
}

void RecvOp::deliver(int source, const Envelope& envelope, const std::byte* data) {
  source_ = source;
  check_envelope(envelope);
  if (envelope.bytes > 0) std::memcpy(buffer_.mutable_bytes(), data, envelope.bytes);
  if (!target_.is_contiguous()) target_.copy_from(buffer_);
}

void RecvOp::begin_data(int source, const Envelope& envelope) {
  source_ = source;
  envelope_ = envelope;
  num_chunks_ = (envelope.bytes + kDataChunkBytes - 1) / kDataChunkBytes;
  try {
    check_envelope(envelope);
  } catch (const Mismatch&) {  // the data is received and discarded, so that the send completes
    mismatch_ = std::current_exception();
    discard_buffer_.resize(kDataChunkBytes);
  }
  in_lane_ = true;
}

// Receives the data chunk by chunk, with at most kRecvWindow posted receives, then sends the acknowledgement.
bool RecvOp::step() {
  for (; chunks_posted_ < num_chunks_ || !requests_.empty();) {
    while (chunks_posted_ < num_chunks_ && requests_.size() < (mismatch_ ? 1 : kRecvWindow)) {
      const std::uint64_t offset = chunks_posted_ * kDataChunkBytes;
      std::byte* const destination = mismatch_ ? discard_buffer_.data() : buffer_.mutable_bytes() + offset;
      set_peer(source_);
      requests_.push_back(
          context().transport().receive(source_, {kDataChannel, envelope_.data_sequence + chunks_posted_}, destination,
                                        std::min<std::uint64_t>(kDataChunkBytes, envelope_.bytes - offset)));
      ++chunks_posted_;
    }
    if (!test_request(requests_.front(), source_)) return false;
    requests_.erase(requests_.begin());
  }
  context().control_sender().send(source_, {.type = ControlType::ack, .data_sequence = envelope_.data_sequence},
                                  nullptr);
  if (mismatch_) std::rethrow_exception(mismatch_);
  if (!target_.is_contiguous()) target_.copy_from(buffer_);
  return true;
}

void RecvOp::finish(std::exception_ptr error) {
  requests_.clear();
  context().control_channel().finish(*this, std::move(error));
}

std::exception_ptr RecvOp::timeout_error() {
  requests_.clear();
  return context().timeout_error(*this, {source_});
}

void RecvOp::drive() {
  context().control_channel().wait_until([&] { return done() || in_lane(); }, *this);
  if (done()) return;
  context().control_channel().data_lane().drive_until([&] { return done(); }, [&] { return deadline(); });
}

void RecvOp::expedite() {
  if (in_lane()) context().control_channel().data_lane().wake();
}

}  // namespace hookline::p2p
