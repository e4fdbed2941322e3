// P2PChecker: one thread polls all pending sends and receives of a rank in the order they were posted.
#include "group/mail_checks.hpp"

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

constexpr std::chrono::microseconds kShortestPause{50};
constexpr std::chrono::microseconds kLongestPause{5000};

/// A pending send or receive.
struct Letter {
  Collective call;
  Clock::time_point deadline;
  std::shared_ptr<std::atomic<int>> source;
  Promise<std::vector<Tensor>> promise;
  CallContext context = current_context();  ///< the caller's
  std::string key = {};                     ///< set once this rank has stored its signature there

  bool sends() const { return call.type == OpType::send; }
  bool from_any() const { return call.type == OpType::recv_anysource; }
  /// Returns the operation name and the properties that must be equal on both ranks.
  std::string text() const {
    const Tensor& t = sends() ? call.inputs.at(0) : call.outputs.at(0);
    return fmt::format("{} of {}{} with tag {}", sends() ? "send" : "recv", name(t.dtype()), to_string(t.shape()),
                       call.tag);
  }
};

std::string after_name(const std::string& text) {
  const auto at = text.find(" of ");
  return at == std::string::npos ? text : text.substr(at);
}

}  // namespace

class MailChecks::Desk {
 public:
  explicit Desk(std::shared_ptr<CheckedParts> parts) : parts_(std::move(parts)), store_(parts_->store) {}

  /// Adds an operation. Returns true if no thread is running: the caller must then call run().
  bool add(Letter letter) {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(letter));
    came_.notify_one();
    return !std::exchange(served_, true);
  }
  void wake() {
    const std::lock_guard lock(mutex_);
    came_.notify_one();
  }

  /// Polls all pending operations until none is left.
  void serve() {
    auto pause = kShortestPause;
    next_look_ = deadline_after(kInterruptPeriod);
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        if (posted_.empty() && !waiting_.empty()) came_.wait_for(lock, pause);
        if (!posted_.empty()) pause = kShortestPause;
        waiting_.splice(waiting_.end(), posted_);
        if (waiting_.empty()) {
          served_ = false;
          return;
        }
      }
      pause = look_at_all() ? kShortestPause : std::min(2 * pause, kLongestPause);
    }
  }

 private:
  int rank() const { return parts_->group->rank(); }

  bool look_at_all() {
    bool moved = false;
    for (auto m = waiting_.begin(); m != waiting_.end();) {
      bool over = true;
      try {
        over = look_at(m);
        if (over) start(*m);
      } catch (...) {
        m->promise.set_error(std::current_exception());
      }
      moved = moved || over;
      m = over ? waiting_.erase(m) : std::next(m);
    }
    return moved;
  }

  /// True if a message from `source` must go to a receive that was posted earlier.
  bool comes_later(std::list<Letter>::iterator receive, int source) const {
    return std::any_of(waiting_.begin(), std::list<Letter>::const_iterator(receive), [&](const Letter& m) {
      return !m.sends() && m.call.tag == receive->call.tag && (m.from_any() || m.call.root == source);
    });
  }
  bool send_comes_later(std::list<Letter>::iterator send) const {
    return std::any_of(waiting_.begin(), std::list<Letter>::const_iterator(send), [&](const Letter& m) {
      return m.sends() && m.call.tag == send->call.tag && m.call.root == send->call.root;
    });
  }

  /// Returns true if both ranks have called the same. Throws on a mismatch, a timeout or an abort.
  bool look_at(std::list<Letter>::iterator m) {
    try {
      parts_->check_all(next_look_);
    } catch (...) {
      withdraw(*m);
      throw;
    }
    if (m->from_any() ? find_sender(m) : meet(m)) return true;
    if (Clock::now() >= m->deadline) give_up(*m);
    return false;
  }

  bool meet(std::list<Letter>::iterator m) {
    if (m->key.empty()) {
      if (m->sends() ? send_comes_later(m) : comes_later(m, m->call.root)) return false;
      const auto [from, to] = ends(*m);
      const std::string key = next_key(from, to, m->call.tag);
      const std::string found = store_->compare_set(key, "", m->text());
      if (found == m->text()) {
        m->key = key;
        return false;
      }
      answer(*m, key, found);
      return true;
    }
    const std::string answer_key = m->key + "/answer";
    if (!store_->check({answer_key})) return false;
    const std::string theirs = store_->get(answer_key);
    store_->delete_key(answer_key);
    compare(*m, theirs);
    return true;
  }

  bool find_sender(std::list<Letter>::iterator m) {
    for (int from = 0; from < parts_->group->size(); ++from) {
      if (from == rank() || comes_later(m, from)) continue;
      const std::string key = key_of(from, rank(), m->call.tag, numbers_[{from, rank(), m->call.tag}] + 1);
      if (!store_->check({key})) continue;
      next_key(from, rank(), m->call.tag);
      m->call.root = from;
      answer(*m, key, store_->get(key));
      return true;
    }
    return false;
  }

  void answer(const Letter& m, const std::string& key, const std::string& theirs) {
    store_->set(key + "/answer", m.text());
    store_->delete_key(key);
    compare(m, theirs);
  }

  void compare(const Letter& m, const std::string& theirs) const {
    if (after_name(m.text()) == after_name(theirs)) return;
    const auto [from, to] = ends(m);
    throw Mismatch(fmt::format("send from rank {} to rank {} does not match its recv: rank {} called {}, "
                               "rank {} called {}",
                               from, to, from, m.sends() ? m.text() : theirs, to, m.sends() ? theirs : m.text()),
                   {m.sends() ? to : from});
  }

  void start(Letter& m) {
    if (!m.sends()) m.source->store(m.call.root, std::memory_order_release);
    if (m.from_any()) m.call.type = OpType::recv;
    m.call.timeout = time_left(m.deadline);
    const ContextScope of_the_caller(m.context);
    m.promise.set_from([&] { return parts_->group->run(std::move(m.call))->get_future(); });
  }

  [[noreturn]] void give_up(Letter& m) {
    const std::string peer = m.from_any() ? "any rank" : fmt::format("rank {}", m.call.root);
    const std::string text = fmt::format("{} {} {} on rank {} of {}: {} called a matching {} in time{}", m.text(),
                                         m.sends() ? "to" : "from", peer, rank(), parts_->group->size(),
                                         m.from_any() ? "no rank" : peer + " has not",
                                         m.sends() ? "recv" : "send", what_else(m));
    withdraw(m);
    const Timeout error(text);
    abort_quietly(*parts_->group, text);
    parts_->give_up(std::make_exception_ptr(error), text);
    throw error;
  }

  /// Lists unmatched calls of the peer, for example with another tag.
  std::string what_else(const Letter& m) {
    std::vector<std::string> calls;
    try {
      for (int peer = 0; peer < parts_->group->size(); ++peer) {
        if (peer == rank() || (!m.from_any() && peer != m.call.root)) continue;
        const std::string start = m.sends() ? fmt::format("checked/mail/{}-{}/", rank(), peer)
                                            : fmt::format("checked/mail/{}-{}/", peer, rank());
        for (const std::string& key : store_->list_keys()) {
          if (!key.starts_with(start) || key == m.key || !store_->check({key})) continue;
          const std::string text = store_->get(key);
          if (text.starts_with(m.sends() ? "recv" : "send")) calls.push_back(fmt::format("rank {} {}", peer, text));
        }
      }
    } catch (const Error&) {  // the store cannot list its keys
    }
    std::sort(calls.begin(), calls.end());
    return calls.empty() ? "" : fmt::format("; unmatched calls: {}", fmt::join(calls, ", "));
  }

  /// Deletes the stored signature.
  void withdraw(Letter& m) {
    if (m.key.empty()) return;
    try {
      store_->delete_key(std::exchange(m.key, {}));
    } catch (const Error&) {  // the original error takes precedence
    }
  }

  std::pair<int, int> ends(const Letter& m) const {
    return m.sends() ? std::pair(rank(), m.call.root) : std::pair(m.call.root, rank());
  }
  static std::string key_of(int from, int to, int tag, std::uint64_t number) {
    return fmt::format("checked/mail/{}-{}/{}/{}", from, to, tag, number);
  }
  std::string next_key(int from, int to, int tag) { return key_of(from, to, tag, ++numbers_[{from, to, tag}]); }

  const std::shared_ptr<CheckedParts> parts_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::list<Letter> posted_;
  bool served_ = false;
  // The fields below are used only by the thread in run().
  OwnWay store_;
  Clock::time_point next_look_;  ///< next poll for an abort by another rank
  std::list<Letter> waiting_;
  std::map<std::tuple<int, int, int>, std::uint64_t> numbers_;  ///< messages so far, by sender, receiver and tag
};

MailChecks::MailChecks(std::shared_ptr<CheckedParts> parts)
    : desk_(std::make_shared<Desk>(std::move(parts))), thread_("hl-checked") {}

MailChecks::~MailChecks() { desk_->wake(); }

Future<std::vector<Tensor>> MailChecks::post(Collective collective, Clock::time_point deadline,
                                             std::shared_ptr<std::atomic<int>> source) {
  Letter letter{.call = std::move(collective),
                .deadline = deadline,
                .source = std::move(source),
                .promise = Promise<std::vector<Tensor>>()};
  auto outcome = letter.promise.get_future();
  if (desk_->add(std::move(letter))) thread_.post([desk = desk_] { desk->serve(); });
  return outcome;
}

}  // namespace hookline::group
