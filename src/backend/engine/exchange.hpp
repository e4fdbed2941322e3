// One collective on an engine: the ranks greet each other with what they call, then move the bytes.
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

/// A greeting is what a rank sends to every other one first: its call; behind it, for alltoall, how many bytes go to
/// and come from each rank; then the blocks, where they are small. Every rank has the greetings of all, compares them,
/// and decides from all of them, so that all decide alike. Nothing is written to a tensor, and nothing is received that
/// is not a greeting, before they agree.
class Exchange final : public Operation, public Script {
 public:
  Exchange(std::shared_ptr<Station> station, Milliseconds timeout, int lane, Collective&& what);

  /// Posts the greetings; to be called first, in the order of the lane. `number` counts its operations from 1.
  void begin(std::uint64_t number);
  /// Whether it should be seen to at once, though somebody may come and wait for it.
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
  using Flat = backend::Piece;  ///< a block that lies in one piece

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

  /// A stream in one piece: itself, or packed (and unpacked at the end, where it is taken).
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
  std::size_t room_ = 0;  ///< for a greeting and what is behind it
  std::size_t inline_limit_ = 0;
  bool inlined_ = false;  ///< what this rank gives lies behind its greeting
  bool agreed_ = false;   ///< all greetings are there
  bool greeted_ = false;  ///< and this rank's are with all others
  std::exception_ptr begin_error_;
  Tensor greetings_;                   ///< of all ranks, the own one too
  std::vector<std::uint64_t> splits_;  ///< of alltoall: bytes from each rank (row) to each rank (column)
  struct Packed {
    const backend::Stream* stream;
    Tensor memory;
    bool take;
  };
  std::vector<Packed> packed_;
  Tensor scratch_;
  // Messages come last: they are let go of before the memory that they use.
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
