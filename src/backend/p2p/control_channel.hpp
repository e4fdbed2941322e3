// The control channel: matches sends with receives, and carries acknowledgements, goodbyes and aborts.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/p2p/envelope.hpp"
#include "backend/p2p/failure_detector.hpp"
#include "backend/p2p/lane.hpp"
#include "backend/p2p/transport_op.hpp"

namespace hookline::p2p {

inline constexpr std::size_t kDataChunkBytes = 4 * 1024 * 1024;  ///< the chunk size of the data of a large send

class SendOp;
class RecvOp;

/// A listener thread receives every control message as it arrives. A small send is eager: its payload travels with the
/// envelope, it completes at once, and an unmatched one is queued as unexpected. A large send is a rendezvous: its data
/// stay with the sender until a receive matches, and it completes with the receiver's acknowledgement.
class ControlChannel {
 public:
  explicit ControlChannel(P2PContext& context);

  WorkPtr send(Operation&& operation, Milliseconds timeout);
  WorkPtr receive(Operation&& operation, Milliseconds timeout);

  /// Interrupts the listener's wait. Once poll_epoch() has changed, the listener has polled again.
  void poke_listener() noexcept;
  std::uint64_t poll_epoch() const noexcept { return poll_epoch_.load(); }

  /// The body of the listener thread.
  void run_listener();
  void stop_listener() noexcept;

  /// Fails all pending sends and receives. Only once the group is unusable.
  void fail_pending();
  /// Fails the group if a pending operation has timed out, or if its peers have departed or died.
  void check_peers();
  /// Blocks until `done` returns true or the operation has timed out. The listener thread changes the state.
  void wait_until(const std::function<bool()>& done, const TransportOp& op);
  /// Completes a send or receive, and wakes its waiters.
  void finish(TransportOp& op, std::exception_ptr error);

  Lane& data_lane() noexcept { return data_lane_; }

 private:
  struct UnexpectedMessage {  ///< a send without a matching receive
    int source;
    Envelope envelope;
    std::vector<std::byte> data;
  };

  void handle(int source, const Envelope& envelope, const std::byte* data);
  void deliver(const std::shared_ptr<RecvOp>& op, const UnexpectedMessage& message);
  /// Completes an operation that is not listed yet if the group is unusable. Requires the mutex: an operation that is
  /// listed under the same lock is found by fail_pending(), which runs after the group became unusable.
  bool complete_if_unusable(TransportOp& op);
  void start_spinning();
  /// Returns the error of a pending operation that cannot complete any more, or null. Requires the mutex.
  std::exception_ptr failure_of(const TransportOp& op, const std::vector<int>& peers, Clock::time_point now);
  std::exception_ptr dead_peer_error(const TransportOp& op, int rank, Clock::time_point now);

  P2PContext& context_;
  Lane data_lane_;  ///< receives the data of large messages
  std::mutex mutex_;
  std::condition_variable changed_;  ///< a send or receive has completed, or was queued in its lane
  std::list<std::shared_ptr<RecvOp>> posted_receives_;
  std::list<UnexpectedMessage> unexpected_;
  std::list<std::shared_ptr<SendOp>> unacked_sends_;  ///< large sends without an acknowledgement
  std::vector<std::uint64_t> next_data_sequence_;     ///< by receiver: sequence of the next data message
  FailureDetector failure_detector_;
  std::vector<std::atomic<std::uint64_t>> messages_received_;  ///< by sender: control messages so far
  std::atomic<WaitPolicy> wait_policy_ = WaitPolicy::block;    ///< of the listener; spin while an operation is pending
  std::atomic<bool> poll_requested_ = false;                   ///< diagnose_disconnect() waits for a poll
  std::atomic<std::uint64_t> poll_epoch_ = 0;
  std::mutex listener_mutex_;
  Request* listener_request_ = nullptr;
  bool stopping_ = false;
};

}  // namespace hookline::p2p
