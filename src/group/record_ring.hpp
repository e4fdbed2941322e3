// FlightRecordRing: the ring buffer of a flight recorder.
#pragma once

#include <array>
#include <mutex>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>
#include <hookline/group/recorded.hpp>

namespace hookline::group {

/// One operation. All fields but state, times and error are written when it starts.
struct Record {
  enum class State : std::uint8_t { running, done, failed };
  std::uint64_t number = 0;   ///< sequence number among all operations of the group
  std::uint64_t in_lane = 0;  ///< sequence number among the collectives of its lane, or among sends and receives
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
  Dims shape;  ///< shape of the first tensor
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

  /// Records the start of an operation and returns its number.
  std::uint64_t start(const Collective& collective);
  /// Records the end of an operation. The first error triggers a dump.
  void end(std::uint64_t number, Clock::time_point started, Clock::time_point finished,
           const std::exception_ptr& error);

  std::string json(const std::string& reason) const;
  std::string dump(const std::string& path, const std::string& reason) const;
  /// Dumps without throwing; prints the path or the error to stderr.
  void try_dump(const std::string& reason) const noexcept;
  const RecordOptions& options() const noexcept { return options_; }

 private:
  static constexpr std::size_t kOutsideLanes = Capabilities::kMostLanes;  ///< counter index of sends and receives

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

/// Registers the ring for dumps at SIGUSR1. The first registration installs the signal handler, which chains to the
/// previous one.
void dump_at_signal(RecordRing* ring);
void forget_at_signal(RecordRing* ring);

}  // namespace hookline::group
