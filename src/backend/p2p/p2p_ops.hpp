// Point-to-point operations: a large send, and a receive.
#pragma once

#include <memory>
#include <vector>

#include "backend/p2p/control_channel.hpp"
#include "backend/p2p/lane.hpp"
#include "backend/p2p/transport_op.hpp"

namespace hookline::p2p {

/// A large send. It completes with the receiver's acknowledgement.
class SendOp final : public TransportOp {
 public:
  SendOp(std::shared_ptr<P2PContext> context, Milliseconds timeout, Operation&& arguments);

  /// Posts all data chunks. The transport sends each one when the receiver has posted its receive.
  void post(std::uint64_t first_sequence);
  void release_requests() noexcept { requests_.clear(); }
  const Tensor& data() const noexcept { return data_; }
  int target() const noexcept { return operation().root; }
  std::uint64_t data_sequence() const noexcept { return data_sequence_; }
  std::string describe() const override;

 private:
  void drive() override;
  void expedite() override {}

  const Tensor data_;
  std::uint64_t data_sequence_ = 0;
  std::vector<std::unique_ptr<Request>> requests_;
};

/// A receive. It waits for a matching envelope; the data of a large message then arrive in the control channel's data
/// lane.
class RecvOp final : public TransportOp, public LaneTask {
 public:
  RecvOp(std::shared_ptr<P2PContext> context, Milliseconds timeout, Operation&& arguments);

  bool matches(int source, int tag) const noexcept;
  int source_rank() const override { return done() ? source_ : -1; }
  std::string describe() const override;

  /// Copies the payload of a small message. Throws Mismatch.
  void deliver(int source, const Envelope& envelope, const std::byte* data);
  /// Prepares to receive the data of a large message.
  void begin_data(int source, const Envelope& envelope);

  bool step() override;
  void finish(std::exception_ptr error) override;
  Clock::time_point task_deadline() const override { return deadline(); }
  std::exception_ptr timeout_error() override;
  std::string description() const override { return describe(); }

 private:
  void drive() override;
  void expedite() override;
  bool in_lane() const noexcept { return in_lane_.load(); }
  /// Throws Mismatch if size or dtype of the message differ from the target.
  void check_envelope(const Envelope& envelope) const;

  const Tensor target_;
  const Tensor buffer_;  ///< the target itself where it is contiguous
  int source_ = -1;
  std::exception_ptr mismatch_;
  std::atomic<bool> in_lane_ = false;
  Envelope envelope_;
  std::vector<std::byte> discard_buffer_;
  std::uint64_t chunks_posted_ = 0;
  std::uint64_t num_chunks_ = 0;
  std::vector<std::unique_ptr<Request>> requests_;
};

}  // namespace hookline::p2p
