// Sends, receives, and what ranks tell each other outside operations: all of it begins with a message of mail.
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

inline constexpr std::size_t kDataBytes = 4 * 1024 * 1024;  ///< the most that a message of a send's data has

class SendOperation;
class ReceiveOperation;

/// The thread that listens takes every envelope as it comes. What nobody receives yet is kept; data stay with the
/// sender until somebody does. A small send is over at once, a large one when the receiver says that it has it.
class Mail {
 public:
  explicit Mail(Station& station);

  WorkPtr send(Collective&& collective, Milliseconds timeout);
  WorkPtr receive(Collective&& collective, Milliseconds timeout);

  /// Has the thread that listens come back from its wait. When looks() has changed, it takes what has come next.
  void look() noexcept;
  std::uint64_t looks() const noexcept { return looks_.load(); }

  /// The body of the thread that listens.
  void listen();
  void end_listening() noexcept;

  /// Ends everything that is pending, where the group is unusable.
  void end_all();
  /// Fails the group where a receive's or send's time is up, nobody is left to send, or one of those has died.
  void look_around();
  /// Waits for something that the listening thread does for an operation, or for its deadline.
  void wait_until(const std::function<bool()>& over, const Operation& operation);
  /// Ends a send or receive, and wakes those who wait for it.
  void finish(Operation& operation, std::exception_ptr error);

  Lane& incoming() noexcept { return incoming_; }

 private:
  struct Letter {  ///< a send of a peer's that nobody receives yet
    int source;
    Envelope envelope;
    std::vector<std::byte> data;
  };

  void handle(int source, const Envelope& envelope, const std::byte* data);
  void take(const std::shared_ptr<ReceiveOperation>& receive, const Letter& letter);
  /// Ends an operation that is in no list yet. Under the mutex: one that is found usable here and listed before the
  /// mutex is let go of is found by end_all(), which comes after the group became unusable.
  bool over_if_unusable(Operation& operation);
  void set_urgent();
  /// Why a pending operation can come to nothing any more, or null. Under the mutex.
  std::exception_ptr hopeless(const Operation& operation, const std::vector<int>& awaited, Clock::time_point now);
  std::exception_ptr if_dead(const Operation& operation, int rank, Clock::time_point now);

  Station& station_;
  Lane incoming_;  ///< data of large messages, as they come in
  std::mutex mutex_;
  std::condition_variable changed_;  ///< a send or receive is over, or has got into its lane
  std::list<std::shared_ptr<ReceiveOperation>> receives_;
  std::list<Letter> letters_;
  std::list<std::shared_ptr<SendOperation>> sends_;  ///< large ones that the receiver has not got yet
  std::vector<std::uint64_t> data_numbers_;          ///< by receiver: messages of data so far
  Doubts doubts_;
  std::vector<std::atomic<std::uint64_t>> heard_;  ///< by sender: mail so far
  std::atomic<bool> urgent_ = false;
  std::atomic<bool> asked_ = false;  ///< somebody waits for a look
  std::atomic<std::uint64_t> looks_ = 0;
  std::mutex listening_mutex_;
  Message* listened_ = nullptr;
  bool ending_ = false;
};

}  // namespace hookline::engine
