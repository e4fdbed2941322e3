// A collective over a transport: header exchange, agreement, and data transfer.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/engine/lane.hpp"
#include "backend/engine/operation.hpp"
#include "backend/parts.hpp"
#include "backend/steps.hpp"

namespace hookline::engine {

using backend::Motion;
using backend::Steps;

/// Every rank first sends a header to every other rank: its OpSignature; for alltoall the bytes to and from each rank;
/// then its blocks, if they are small. All ranks compare the same headers and therefore select the same algorithm.
/// Invariant: before the ranks agree, no tensor is written and only headers are received.
class Exchange final : public Operation, public Script {
 public:
  Exchange(std::shared_ptr<Station> station, Milliseconds timeout, int lane, Collective&& what);

  /// Posts the headers. Call first, in lane order. `number` counts the operations of the lane from 1.
  void begin(std::uint64_t number);
  /// True if the lane's thread should drive the operation at once instead of leaving it to a waiting caller.
  bool is_large() const noexcept { return !inlined_; }

  bool step() override;
  void finish(std::exception_ptr error) override;
  Clock::time_point until() const override { return deadline(); }
  std::exception_ptr time_up() override;
  bool lacks(int rank) override;
  std::string what() const override { return describe(); }
  std::string describe() const override;

  backend::StepsRoom& steps_room() noexcept { return rooms_[frames_++ % rooms_.size()]; }

 private:
  using Flat = backend::Piece;  ///< a contiguous block

  void drive() override;
  void hurry() override;
  void let_go() noexcept;

  Steps run();
  Steps copy_blocks();
  Steps broadcast_slices();
  Steps reduce_slices();

  const std::byte* greeting(int rank) const;
  const std::byte* payload(int rank) const;
  void compare();
  void compare_splits();
  bool all_inlined() const;
  void pull();
  void copy_own();

  bool is_source(int rank) const { return backend::is_source(parts_.motion, rank, collective().root); }
  bool takes_reduction() const { return parts_.motion != Motion::reduce || rank_ == collective().root; }
  std::size_t given_bytes(int source) const;
  std::size_t block_begin(int source, int target) const;
  std::size_t head_bytes() const;

  /// Returns a contiguous block for a list of segments: their own memory, or a buffer, packed now if `give` and
  /// unpacked at the end if `take`.
  Flat flat(const backend::Stream& stream, bool give, bool take);
  void unpack();

  MessageAddress data_address(std::uint64_t index, int phase) const;
  std::unique_ptr<Message> send(int to, std::uint64_t index, int phase, Flat part);
  std::unique_ptr<Message> receive(int from, std::uint64_t index, int phase, Flat part);
  std::size_t at(std::uint64_t index, int rank) const;

  const int lane_;
  const int rank_;
  const int size_;
  backend::Parts parts_;
  backend::Call call_;
  std::uint64_t number_ = 0;
  std::size_t room_ = 0;  ///< bytes of a header with its inline payload
  std::size_t inline_limit_ = 0;
  bool inlined_ = false;  ///< this rank's blocks travel with its header
  bool agreed_ = false;   ///< the headers of all ranks have arrived
  bool greeted_ = false;  ///< this rank's header has been sent to all ranks
  std::exception_ptr begin_error_;
  Tensor greetings_;                   ///< by rank, including this one
  std::vector<std::uint64_t> splits_;  ///< of alltoall: bytes from each rank (row) to each rank (column)
  struct Packed {
    const backend::Stream* stream;
    Tensor memory;
    bool take;
  };
  std::vector<Packed> packed_;
  Tensor scratch_;
  // Requests come last: they are destroyed before the memory that they access.
  std::vector<std::unique_ptr<Message>> sent_;
  std::vector<std::unique_ptr<Message>> received_;
  std::vector<std::unique_ptr<Message>> results_sent_;
  std::vector<std::unique_ptr<Message>> results_received_;

  std::array<backend::StepsRoom, 2> rooms_;
  std::size_t frames_ = 0;
  bool started_ = false;
  Steps steps_;
};

}  // namespace hookline::engine
