// Point-to-point operations: a large send, and a receive.
#pragma once

#include <memory>
#include <vector>

#include "backend/engine/lane.hpp"
#include "backend/engine/mail.hpp"
#include "backend/engine/operation.hpp"

namespace hookline::engine {

/// A large send. It completes with the receiver's acknowledgement.
class SendOperation final : public Operation {
 public:
  SendOperation(std::shared_ptr<Station> station, Milliseconds timeout, Collective&& what);

  /// Posts all data chunks. The transport sends each one when the receiver has posted its receive.
  void post(std::uint64_t first_number);
  void let_go() noexcept { messages_.clear(); }
  const Tensor& data() const noexcept { return data_; }
  int target() const noexcept { return collective().root; }
  std::uint64_t number() const noexcept { return number_; }
  std::string describe() const override;

 private:
  void drive() override;
  void hurry() override {}

  const Tensor data_;
  std::uint64_t number_ = 0;
  std::vector<std::unique_ptr<Message>> messages_;
};

/// A receive. It waits for a matching envelope; the data of a large message then arrive in the control channel's data
/// lane.
class ReceiveOperation final : public Operation, public Script {
 public:
  ReceiveOperation(std::shared_ptr<Station> station, Milliseconds timeout, Collective&& what);

  bool wants(int source, int tag) const noexcept;
  int source_rank() const override { return over() ? source_ : -1; }
  std::string describe() const override;

  /// Copies the payload of a small message. Throws Mismatch.
  void take(int source, const Envelope& envelope, const std::byte* data);
  /// Prepares to receive the data of a large message.
  void begin(int source, const Envelope& envelope);

  bool step() override;
  void finish(std::exception_ptr error) override;
  Clock::time_point until() const override { return deadline(); }
  std::exception_ptr time_up() override;
  std::string what() const override { return describe(); }

 private:
  void drive() override;
  void hurry() override;
  bool in_lane() const noexcept { return in_lane_.load(); }
  /// Throws Mismatch if size or dtype of the message differ from the target.
  void check(const Envelope& envelope) const;

  const Tensor target_;
  const Tensor buffer_;  ///< the target itself where it is contiguous
  int source_ = -1;
  std::exception_ptr mismatch_;
  std::atomic<bool> in_lane_ = false;
  Envelope envelope_;
  std::vector<std::byte> discarded_;
  std::uint64_t posted_ = 0;
  std::uint64_t parts_ = 0;
  std::vector<std::unique_ptr<Message>> messages_;
};

}  // namespace hookline::engine
