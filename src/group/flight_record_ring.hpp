// FlightRecordRing: the ring buffer of a flight recorder.
#pragma once

#include <array>
#include <mutex>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>
#include <hookline/group/flight_recorder.hpp>

namespace hookline::group {

/// One operation. All fields but state, times and error are written when it starts.
struct FlightRecord {
  enum class State : std::uint8_t { running, done, failed };
  std::uint64_t number = 0;         ///< sequence number among all operations of the group
  std::uint64_t lane_sequence = 0;  ///< sequence number among the collectives of its lane, or among sends and receives
  OpType type = OpType::barrier;
  State state = State::running;
  DType dtype = DType::f32;
  int lane = 0;
  int root = 0;
  int tag = 0;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t op_tag = 0;
  std::size_t tensors = 0;
  std::size_t bytes = 0;
  Dims shape;  ///< shape of the first tensor
  Clock::time_point started;
  Clock::time_point finished;
  std::string error;
};

class FlightRecordRing {
 public:
  FlightRecordRing(const ProcessGroup& group, FlightRecorderOptions options);
  FlightRecordRing(const FlightRecordRing&) = delete;
  FlightRecordRing& operator=(const FlightRecordRing&) = delete;
  ~FlightRecordRing();

  /// Records the start of an operation and returns its number.
  std::uint64_t start(const Operation& operation);
  /// Records the end of an operation. The first error triggers a dump.
  void finish(std::uint64_t number, Clock::time_point started, Clock::time_point finished,
              const std::exception_ptr& error);

  std::string json(const std::string& reason) const;
  std::string dump(const std::string& path, const std::string& reason) const;
  /// Dumps without throwing; prints the path or the error to stderr.
  void try_dump(const std::string& reason) const noexcept;
  const FlightRecorderOptions& options() const noexcept { return options_; }

 private:
  static constexpr std::size_t kP2PIndex = Capabilities::kMaxLanes;  ///< counter index of sends and receives

  const FlightRecorderOptions options_;
  const int rank_;
  const int size_;
  const std::string backend_;
  mutable std::mutex mutex_;
  std::vector<FlightRecord> ring_;
  std::uint64_t count_ = 0;
  std::array<std::uint64_t, kP2PIndex + 1> lane_counts_{};
  bool dumped_error_ = false;
};

/// Registers the ring for dumps on SIGUSR1. The first registration installs the signal handler, which chains to the
/// previous one.
void register_signal_dump(FlightRecordRing* ring);
void unregister_signal_dump(FlightRecordRing* ring);

}  // namespace hookline::group
