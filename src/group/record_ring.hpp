// The last operations of a group, in a ring.
#pragma once

#include <array>
#include <mutex>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>
#include <hookline/group/recorded.hpp>

namespace hookline::group {

/// One operation. What never changes is written when it starts.
struct Record {
  enum class State : std::uint8_t { running, done, failed };
  std::uint64_t number = 0;   ///< of all operations of the group
  std::uint64_t in_lane = 0;  ///< of the collectives of its lane; of the sends and receives for one of these
  OpType type = OpType::barrier;
  State state = State::running;
  DType dtype = DType::f32;
  int lane = 0;
  int root = 0;
  int tag = 0;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t note = 0;
  std::size_t tensors = 0;
  std::size_t bytes = 0;
  Dims shape;  ///< of the first tensor
  Clock::time_point started;
  Clock::time_point finished;
  std::string error;
};

class RecordRing {
 public:
  RecordRing(const ProcessGroup& group, RecordOptions options);
  RecordRing(const RecordRing&) = delete;
  RecordRing& operator=(const RecordRing&) = delete;
  ~RecordRing();

  /// Returns its number.
  std::uint64_t start(const Collective& collective);
  /// The first error is dumped.
  void end(std::uint64_t number, Clock::time_point started, Clock::time_point finished,
           const std::exception_ptr& error);

  std::string json(const std::string& reason) const;
  std::string dump(const std::string& path, const std::string& reason) const;
  /// The same where nobody can hear of a failure; says so on stderr.
  void try_dump(const std::string& reason) const noexcept;
  const RecordOptions& options() const noexcept { return options_; }

 private:
  static constexpr std::size_t kOutsideLanes = Capabilities::kMostLanes;  ///< behind the lanes

  const RecordOptions options_;
  const int rank_;
  const int size_;
  const std::string backend_;
  mutable std::mutex mutex_;
  std::vector<Record> ring_;
  std::uint64_t count_ = 0;
  std::array<std::uint64_t, kOutsideLanes + 1> lane_counts_{};
  bool dumped_error_ = false;
};

/// Dumps every ring in the list at SIGUSR1. The signal's handler is installed with the first, and calls the one that
/// was there before.
void dump_at_signal(RecordRing* ring);
void forget_at_signal(RecordRing* ring);

}  // namespace hookline::group
