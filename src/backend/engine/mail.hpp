// The control channel: matches sends with receives, and carries acknowledgements, goodbyes and aborts.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/engine/doubts.hpp"
#include "backend/engine/envelope.hpp"
#include "backend/engine/lane.hpp"
#include "backend/engine/operation.hpp"

namespace hookline::engine {

inline constexpr std::size_t kDataBytes = 4 * 1024 * 1024;  ///< the chunk size of the data of a large send

class SendOperation;
class ReceiveOperation;

/// A listener thread receives every control message as it arrives. A small send is eager: its payload travels with the
/// envelope, it completes at once, and an unmatched one is queued as unexpected. A large send is a rendezvous: its data
/// stay with the sender until a receive matches, and it completes with the receiver's acknowledgement.
class Mail {
 public:
  explicit Mail(Station& station);

  WorkPtr send(Collective&& collective, Milliseconds timeout);
  WorkPtr receive(Collective&& collective, Milliseconds timeout);

  /// Interrupts the listener's wait. Once poll_epoch() has changed, the listener has polled again.
  void look() noexcept;
  std::uint64_t looks() const noexcept { return looks_.load(); }

  /// The body of the listener thread.
  void listen();
  void end_listening() noexcept;

  /// Fails all pending sends and receives. Only once the group is unusable.
  void end_all();
  /// Fails the group if a pending operation has timed out, or if its peers have departed or died.
  void look_around();
  /// Blocks until `over` returns true or the operation has timed out. The listener thread changes the state.
  void wait_until(const std::function<bool()>& over, const Operation& operation);
  /// Completes a send or receive, and wakes its waiters.
  void finish(Operation& operation, std::exception_ptr error);

  Lane& incoming() noexcept { return incoming_; }

 private:
  struct Letter {  ///< a send without a matching receive
    int source;
    Envelope envelope;
    std::vector<std::byte> data;
  };

  void handle(int source, const Envelope& envelope, const std::byte* data);
  void take(const std::shared_ptr<ReceiveOperation>& receive, const Letter& letter);
  /// Completes an operation that is not listed yet if the group is unusable. Requires the mutex: an operation that is
  /// listed under the same lock is found by fail_pending(), which runs after the group became unusable.
  bool over_if_unusable(Operation& operation);
  void set_urgent();
  /// Returns the error of a pending operation that cannot complete any more, or null. Requires the mutex.
  std::exception_ptr hopeless(const Operation& operation, const std::vector<int>& awaited, Clock::time_point now);
  std::exception_ptr if_dead(const Operation& operation, int rank, Clock::time_point now);

  Station& station_;
  Lane incoming_;  ///< receives the data of large messages
  std::mutex mutex_;
  std::condition_variable changed_;  ///< a send or receive has completed, or was queued in its lane
  std::list<std::shared_ptr<ReceiveOperation>> receives_;
  std::list<Letter> letters_;
  std::list<std::shared_ptr<SendOperation>> sends_;  ///< large sends without an acknowledgement
  std::vector<std::uint64_t> data_numbers_;          ///< by receiver: sequence of the next data message
  Doubts doubts_;
  std::vector<std::atomic<std::uint64_t>> heard_;  ///< by sender: control messages so far
  std::atomic<bool> urgent_ = false;               ///< an operation is pending, so the listener spins
  std::atomic<bool> asked_ = false;                ///< diagnose_disconnect() waits for a poll
  std::atomic<std::uint64_t> looks_ = 0;
  std::mutex listening_mutex_;
  Message* listened_ = nullptr;
  bool ending_ = false;
};

}  // namespace hookline::engine
