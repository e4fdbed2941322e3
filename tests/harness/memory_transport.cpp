// MemoryTransport: matches sends and receives in one table under one mutex.
#include "harness/memory_transport.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

#include <hookline/core/error.hpp>

namespace hookline::testing {
namespace {

struct Posted {
  int source = -1;  ///< source rank; -1 in a receive from any rank
  std::byte* destination = nullptr;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool completed = false;
  bool interrupted = false;
};

using Key = std::tuple<int, int, std::uint64_t>;  // receiver, channel, number

struct MemoryNetwork {
  MemoryNetwork(int ranks, bool block)
      : size(ranks), block_after_cancel(block), closed(static_cast<std::size_t>(ranks)) {}

  const int size;
  const bool block_after_cancel;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<Key, std::deque<Posted*>> sends;
  std::map<Key, std::deque<Posted*>> receives;
  std::vector<bool> closed;
  std::set<std::pair<int, int>> blocked;  ///< sender, receiver
  std::map<std::string, std::weak_ptr<MemoryNetwork>> subgroups;
};

class MemoryRequest final : public Request {
 public:
  MemoryRequest(std::shared_ptr<MemoryNetwork> network, Key key, bool is_send, int rank, int peer)
      : network_(std::move(network)), key_(key), is_send_(is_send), rank_(rank), peer_(peer) {}
  MemoryRequest(const MemoryRequest&) = delete;
  MemoryRequest& operator=(const MemoryRequest&) = delete;
  ~MemoryRequest() override {
    const std::lock_guard lock(network_->mutex);
    auto& queue = (is_send_ ? network_->sends : network_->receives)[key_];
    queue.erase(std::remove(queue.begin(), queue.end(), &posted), queue.end());
    if (network_->block_after_cancel && is_send_ && !posted.completed) network_->blocked.emplace(rank_, peer_);
  }

  bool wait(WaitPolicy) override {
    std::unique_lock lock(network_->mutex);
    network_->changed.wait(lock, [&] { return posted.completed || posted.interrupted || is_disconnected(); });
    if (std::exchange(posted.interrupted, false)) return false;
    if (posted.completed) return true;
    throw PeerLost("rank " + std::to_string(peer_) + " has closed its end");
  }
  void interrupt() noexcept override {
    const std::lock_guard lock(network_->mutex);
    posted.interrupted = true;
    network_->changed.notify_all();
  }
  int source() const noexcept override { return posted.source; }

  Posted posted;

 private:
  bool is_disconnected() const {
    const auto is_closed = [&](int r) { return r >= 0 && network_->closed[static_cast<std::size_t>(r)]; };
    return is_closed(rank_) || is_closed(peer_);
  }

  const std::shared_ptr<MemoryNetwork> network_;
  const Key key_;
  const bool is_send_;
  const int rank_;
  const int peer_;
};

class MemoryTransport final : public Transport {
 public:
  MemoryTransport(std::shared_ptr<MemoryNetwork> network, int rank) : network_(std::move(network)), rank_(rank) {}

  std::string name() const override { return "memory"; }
  int rank() const override { return rank_; }
  int size() const override { return network_->size; }

  std::unique_ptr<Request> send(int to, MessageTag address, const std::byte* data, std::size_t bytes) override {
    auto message = post(to, {to, address.channel, address.sequence}, true);
    message->posted.source = rank_;
    message->posted.data = data;
    message->posted.bytes = bytes;
    match_or_enqueue(message->posted, {to, address.channel, address.sequence}, true);
    return message;
  }
  std::unique_ptr<Request> receive(int from, MessageTag address, std::byte* data, std::size_t room) override {
    auto message = post(from, {rank_, address.channel, address.sequence}, false);
    message->posted.source = from;
    message->posted.destination = data;
    message->posted.bytes = room;
    match_or_enqueue(message->posted, {rank_, address.channel, address.sequence}, false);
    return message;
  }
  std::unique_ptr<Request> receive_any(MessageTag address, std::byte* data, std::size_t room) override {
    return receive(-1, address, data, room);
  }

  void throw_if_disconnected(int rank) override {
    const std::lock_guard lock(network_->mutex);
    if (network_->closed[static_cast<std::size_t>(rank)]) throw PeerLost("closed");
  }
  void on_peer_departed(int) noexcept override {}
  void close() noexcept override {
    const std::lock_guard lock(network_->mutex);
    network_->closed[static_cast<std::size_t>(rank_)] = true;
    network_->changed.notify_all();
  }
  std::shared_ptr<Transport> new_subgroup(const std::vector<int>& ranks, const std::string& name,
                                          Milliseconds) override {
    const std::lock_guard lock(network_->mutex);
    std::shared_ptr<MemoryNetwork> child = network_->subgroups[name].lock();
    if (!child)
      network_->subgroups[name] = child =
          std::make_shared<MemoryNetwork>(static_cast<int>(ranks.size()), network_->block_after_cancel);
    const auto own = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_shared<MemoryTransport>(child, static_cast<int>(own));
  }

 private:
  std::unique_ptr<MemoryRequest> post(int peer, Key key, bool is_send) {
    if (peer >= 0) throw_if_disconnected(peer);
    throw_if_disconnected(rank_);
    return std::make_unique<MemoryRequest>(network_, key, is_send, rank_, peer);
  }

  bool matches(const Posted& receive, const Posted& send, int receiver) const {
    if (network_->blocked.contains({send.source, receiver})) return false;
    return receive.source < 0 || receive.source == send.source;
  }

  void match_or_enqueue(Posted& mine, Key key, bool is_send) {
    const std::lock_guard lock(network_->mutex);
    auto& others = (is_send ? network_->receives : network_->sends)[key];
    const auto found = std::find_if(others.begin(), others.end(), [&](const Posted* other) {
      return is_send ? matches(*other, mine, std::get<0>(key)) : matches(mine, *other, rank_);
    });
    if (found == others.end()) {
      (is_send ? network_->sends : network_->receives)[key].push_back(&mine);
      return;
    }
    Posted& other = **found;
    others.erase(found);
    Posted& receive = is_send ? other : mine;
    const Posted& sent = is_send ? mine : other;
    if (sent.bytes > receive.bytes) std::abort();  // the backend guarantees that messages fit
    std::memcpy(receive.destination, sent.data, sent.bytes);
    receive.source = sent.source;
    mine.completed = other.completed = true;
    network_->changed.notify_all();
  }

  const std::shared_ptr<MemoryNetwork> network_;
  const int rank_;
};

}  // namespace

std::vector<std::shared_ptr<Transport>> make_memory_transports(int size, bool block_after_cancel) {
  const auto network = std::make_shared<MemoryNetwork>(size, block_after_cancel);
  std::vector<std::shared_ptr<Transport>> transports;
  for (int r = 0; r < size; ++r) transports.push_back(std::make_shared<MemoryTransport>(network, r));
  return transports;
}

}  // namespace hookline::testing
