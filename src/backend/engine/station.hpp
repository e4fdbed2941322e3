// One rank's station on an engine: its lanes, its mail, and what happens when something fails.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <hookline/backend/engine.hpp>

#include "backend/engine/lane.hpp"
#include "backend/engine/mail.hpp"
#include "backend/engine/operation.hpp"
#include "backend/engine/outbox.hpp"
#include "backend/engine/waits.hpp"

namespace hookline::engine {

/// Failing: whoever notices calls fail(), which sets broken_ first, tells the peers, stops all waits, and ends what is
/// queued; who drives a lane ends that lane. push() looks at unusable() under the lane's mutex, so that nothing slips
/// in between. The peers' mail brings the causes of others, which are taken over as they are.
class Station : public std::enable_shared_from_this<Station> {
 public:
  explicit Station(std::shared_ptr<Engine> engine);
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;
  ~Station();

  void open();
  /// Leaves the group: tells the peers, fails what is pending, ends the threads and the connections.
  void close() noexcept;

  Engine& engine() noexcept { return *engine_; }
  Waits& waits() noexcept { return waits_; }
  Mail& mail() noexcept { return mail_; }
  Outbox& outbox() noexcept { return outbox_; }
  Lane& lane(int index) noexcept { return *lanes_[static_cast<std::size_t>(index)]; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  const std::string& name() const noexcept { return name_; }

  WorkPtr start(Collective&& collective, int lane, Milliseconds timeout);

  /// Throws InvalidArgument where this process is a forked child of the one that made the group.
  void refuse_in_forked_child(std::string_view what) const;

  /// Fails everything, now and later, and tells the peers. The first cause stays. What a peer told is told on as it is.
  void fail(std::exception_ptr cause, const std::string* told = nullptr);
  std::exception_ptr broken() const;
  bool unusable() const noexcept { return unusable_.load(std::memory_order_seq_cst); }
  /// Why nothing can be started: broken, or shut down; null while all is well.
  std::exception_ptr why_unusable() const;

  /// The error for a lost connection: where the peer, or somebody else, has said why, that; it may be on its way. Where
  /// another rank has left and the operation `lacks` its part, that rank: the peer may have given up because of it.
  std::exception_ptr explain(const std::exception_ptr& lost, int rank, const std::string& what,
                             const std::function<bool(int rank)>& lacks);
  /// The error for a rank that must have died, as nothing explains that its connection is lost.
  std::exception_ptr died(const std::string& what, int rank, const std::exception_ptr& lost) const;
  /// The thread that listens has looked.
  void wake_explaining();
  /// The peer has said that it leaves.
  void peer_left(int rank);
  bool has_left(int rank) const noexcept { return left_[static_cast<std::size_t>(rank)].load(); }

  /// Returns the peers whose connections are lost though they did not leave.
  std::vector<int> dead_ranks();

  /// Ends the connections of a group that has been broken so long that everybody has been told.
  void close_if_broken(Milliseconds since) noexcept;
  bool engine_closed() const noexcept { return engine_closed_.load(); }

  /// "… on rank 1 of the gloo group"
  std::string context(const std::string& what) const;
  /// The error of an operation for which some ranks did not come in time.
  std::exception_ptr not_in_time(const Operation& operation, const std::vector<int>& missing) const;

  /// Has a task run on the worker thread, which is started at the first one.
  void post(Task task);

 private:
  const std::shared_ptr<Engine> engine_;
  const int rank_;
  const int size_;
  const std::string name_;
  const std::uint64_t fork_generation_;
  Waits waits_;
  Mail mail_;
  Outbox outbox_;
  std::array<std::unique_ptr<Lane>, kEngineLanes> lanes_;
  std::array<std::uint64_t, kEngineLanes> numbers_ = {};  ///< of operations so far; under the lane's mutex
  std::vector<std::atomic<bool>> left_;

  std::mutex lost_mutex_;
  std::vector<std::optional<Clock::time_point>> lost_since_;  ///< by rank, as dead_ranks() has seen it

  mutable std::mutex mutex_;
  std::condition_variable news_;  ///< broken, or somebody left
  std::exception_ptr broken_;
  Clock::time_point broken_since_;
  bool closed_ = false;
  std::atomic<bool> unusable_ = false;
  std::atomic<bool> engine_closed_ = false;

  std::thread ticking_;
  std::thread listening_;
  std::mutex worker_mutex_;
  std::unique_ptr<ThreadExecutor> worker_;
  std::shared_ptr<Station> itself_;  ///< in a forked child, which never lets go of it
};

}  // namespace hookline::engine
