// P2PChecker: one thread polls all pending sends and receives of a rank in the order they were posted.
#include "group/p2p_checker.hpp"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "group/abort_quietly.hpp"

namespace hookline::group {
namespace {

constexpr std::chrono::microseconds kMinPollInterval{50};
constexpr std::chrono::microseconds kMaxPollInterval{5000};

/// A pending send or receive.
struct P2POp {
  Operation operation;
  Clock::time_point deadline;
  std::shared_ptr<std::atomic<int>> source_rank;
  Promise<std::vector<Tensor>> promise;
  CallContext context = current_context();  ///< the caller's
  std::string key = {};                     ///< set once this rank has stored its signature there

  bool is_send() const { return operation.type == OpType::send; }
  bool is_any_source() const { return operation.type == OpType::recv_anysource; }
  /// Returns the operation name and the properties that must be equal on both ranks.
  std::string signature() const {
    const Tensor& t = is_send() ? operation.inputs.at(0) : operation.outputs.at(0);
    return fmt::format("{} of {}{} with tag {}", is_send() ? "send" : "recv", name(t.dtype()), to_string(t.shape()),
                       operation.tag);
  }
};

std::string without_op_name(const std::string& signature) {
  const auto at = signature.find(" of ");
  return at == std::string::npos ? signature : signature.substr(at);
}

}  // namespace

class P2PChecker::Queue {
 public:
  explicit Queue(std::shared_ptr<CheckedState> state) : state_(std::move(state)), store_(state_->store) {}

  /// Adds an operation. Returns true if no thread is running: the caller must then call run().
  bool add(P2POp op) {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(op));
    posted_cv_.notify_one();
    return !std::exchange(running_, true);
  }
  void wake() {
    const std::lock_guard lock(mutex_);
    posted_cv_.notify_one();
  }

  /// Polls all pending operations until none is left.
  void run() {
    auto poll_interval = kMinPollInterval;
    next_poll_ = deadline_after(kInterruptPeriod);
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        if (posted_.empty() && !pending_.empty()) posted_cv_.wait_for(lock, poll_interval);
        if (!posted_.empty()) poll_interval = kMinPollInterval;
        pending_.splice(pending_.end(), posted_);
        if (pending_.empty()) {
          running_ = false;
          return;
        }
      }
      poll_interval = poll_all() ? kMinPollInterval : std::min(2 * poll_interval, kMaxPollInterval);
    }
  }

 private:
  int rank() const { return state_->inner->rank(); }

  bool poll_all() {
    bool progressed = false;
    for (auto op = pending_.begin(); op != pending_.end();) {
      bool done = true;
      try {
        done = poll(op);
        if (done) start(*op);
      } catch (...) {
        op->promise.set_error(std::current_exception());
      }
      progressed = progressed || done;
      op = done ? pending_.erase(op) : std::next(op);
    }
    return progressed;
  }

  /// True if a message from `source` must go to a receive that was posted earlier.
  bool behind_earlier_recv(std::list<P2POp>::iterator receive, int source) const {
    return std::any_of(pending_.begin(), std::list<P2POp>::const_iterator(receive), [&](const P2POp& m) {
      return !m.is_send() && m.operation.tag == receive->operation.tag &&
             (m.is_any_source() || m.operation.root == source);
    });
  }
  bool behind_earlier_send(std::list<P2POp>::iterator send) const {
    return std::any_of(pending_.begin(), std::list<P2POp>::const_iterator(send), [&](const P2POp& m) {
      return m.is_send() && m.operation.tag == send->operation.tag && m.operation.root == send->operation.root;
    });
  }

  /// Returns true if both ranks have called the operation with the same signature. Throws on a mismatch, a timeout or
  /// an abort.
  bool poll(std::list<P2POp>::iterator op) {
    try {
      state_->poll_abort(next_poll_);
    } catch (...) {
      withdraw(*op);
      throw;
    }
    if (op->is_any_source() ? find_sender(op) : match(op)) return true;
    if (Clock::now() >= op->deadline) fail_with_timeout(*op);
    return false;
  }

  bool match(std::list<P2POp>::iterator op) {
    if (op->key.empty()) {
      if (op->is_send() ? behind_earlier_send(op) : behind_earlier_recv(op, op->operation.root)) return false;
      const auto [from, to] = endpoints(*op);
      const std::string key = next_key(from, to, op->operation.tag);
      const std::string found = store_->compare_set(key, "", op->signature());
      if (found == op->signature()) {
        op->key = key;
        return false;
      }
      answer(*op, key, found);
      return true;
    }
    const std::string answer_key = op->key + "/answer";
    if (!store_->check({answer_key})) return false;
    const std::string peer_signature = store_->get(answer_key);
    store_->delete_key(answer_key);
    throw_if_different(*op, peer_signature);
    return true;
  }

  bool find_sender(std::list<P2POp>::iterator op) {
    for (int from = 0; from < state_->inner->size(); ++from) {
      if (from == rank() || behind_earlier_recv(op, from)) continue;
      const std::string key =
          key_of(from, rank(), op->operation.tag, sequences_[{from, rank(), op->operation.tag}] + 1);
      if (!store_->check({key})) continue;
      next_key(from, rank(), op->operation.tag);
      op->operation.root = from;
      answer(*op, key, store_->get(key));
      return true;
    }
    return false;
  }

  void answer(const P2POp& op, const std::string& key, const std::string& peer_signature) {
    store_->set(key + "/answer", op.signature());
    store_->delete_key(key);
    throw_if_different(op, peer_signature);
  }

  void throw_if_different(const P2POp& op, const std::string& peer_signature) const {
    if (without_op_name(op.signature()) == without_op_name(peer_signature)) return;
    const auto [from, to] = endpoints(op);
    throw Mismatch(fmt::format("send from rank {} to rank {} does not match its recv: rank {} called {}, "
                               "rank {} called {}",
                               from, to, from, op.is_send() ? op.signature() : peer_signature, to,
                               op.is_send() ? peer_signature : op.signature()),
                   {op.is_send() ? to : from});
  }

  void start(P2POp& op) {
    if (!op.is_send()) op.source_rank->store(op.operation.root, std::memory_order_release);
    if (op.is_any_source()) op.operation.type = OpType::recv;
    op.operation.timeout = time_left(op.deadline);
    const ContextScope caller_context(op.context);
    op.promise.set_from([&] { return state_->inner->run(std::move(op.operation))->get_future(); });
  }

  [[noreturn]] void fail_with_timeout(P2POp& op) {
    const std::string peer = op.is_any_source() ? "any rank" : fmt::format("rank {}", op.operation.root);
    const std::string text = fmt::format("{} {} {} on rank {} of {}: {} called a matching {} in time{}", op.signature(),
                                         op.is_send() ? "to" : "from", peer, rank(), state_->inner->size(),
                                         op.is_any_source() ? "no rank" : peer + " has not",
                                         op.is_send() ? "recv" : "send", unmatched_calls(op));
    withdraw(op);
    const Timeout error(text);
    abort_quietly(*state_->inner, text);
    state_->abort_all(std::make_exception_ptr(error), text);
    throw error;
  }

  /// Lists unmatched calls of the peer, for example with another tag.
  std::string unmatched_calls(const P2POp& op) {
    std::vector<std::string> calls;
    try {
      for (int peer = 0; peer < state_->inner->size(); ++peer) {
        if (peer == rank() || (!op.is_any_source() && peer != op.operation.root)) continue;
        const std::string prefix = op.is_send() ? fmt::format("checked/p2p/{}-{}/", rank(), peer)
                                                : fmt::format("checked/p2p/{}-{}/", peer, rank());
        for (const std::string& key : store_->list_keys()) {
          if (!key.starts_with(prefix) || key == op.key || !store_->check({key})) continue;
          const std::string text = store_->get(key);
          if (text.starts_with(op.is_send() ? "recv" : "send")) calls.push_back(fmt::format("rank {} {}", peer, text));
        }
      }
    } catch (const Error&) {  // the store cannot list its keys
    }
    std::sort(calls.begin(), calls.end());
    return calls.empty() ? "" : fmt::format("; unmatched calls: {}", fmt::join(calls, ", "));
  }

  /// Deletes the stored signature.
  void withdraw(P2POp& op) {
    if (op.key.empty()) return;
    try {
      store_->delete_key(std::exchange(op.key, {}));
    } catch (const Error&) {  // the original error takes precedence
    }
  }

  std::pair<int, int> endpoints(const P2POp& op) const {
    return op.is_send() ? std::pair(rank(), op.operation.root) : std::pair(op.operation.root, rank());
  }
  static std::string key_of(int from, int to, int tag, std::uint64_t sequence) {
    return fmt::format("checked/p2p/{}-{}/{}/{}", from, to, tag, sequence);
  }
  std::string next_key(int from, int to, int tag) { return key_of(from, to, tag, ++sequences_[{from, to, tag}]); }

  const std::shared_ptr<CheckedState> state_;
  std::mutex mutex_;
  std::condition_variable posted_cv_;
  std::list<P2POp> posted_;
  bool running_ = false;
  // The fields below are used only by the thread in run().
  LazyStoreClone store_;
  Clock::time_point next_poll_;  ///< next poll for an abort by another rank
  std::list<P2POp> pending_;
  std::map<std::tuple<int, int, int>, std::uint64_t> sequences_;  ///< messages so far, by sender, receiver and tag
};

P2PChecker::P2PChecker(std::shared_ptr<CheckedState> state)
    : queue_(std::make_shared<Queue>(std::move(state))), thread_("hookline-checks") {}

P2PChecker::~P2PChecker() { queue_->wake(); }

Future<std::vector<Tensor>> P2PChecker::post(Operation operation, Clock::time_point deadline,
                                             std::shared_ptr<std::atomic<int>> source_rank) {
  P2POp op{.operation = std::move(operation),
           .deadline = deadline,
           .source_rank = std::move(source_rank),
           .promise = Promise<std::vector<Tensor>>()};
  auto outcome = op.promise.get_future();
  if (queue_->add(std::move(op))) thread_.post([desk = queue_] { desk->run(); });
  return outcome;
}

}  // namespace hookline::group
