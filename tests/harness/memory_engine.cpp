// MemoryTransport: matches sends and receives in one table under one mutex.
#include "harness/memory_engine.hpp"

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
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
  bool through = false;
  bool nudged = false;
};

using Key = std::tuple<int, int, std::uint64_t>;  // receiver, channel, number

struct World {
  World(int ranks, bool clogs) : size(ranks), clogging(clogs), closed(static_cast<std::size_t>(ranks)) {}

  const int size;
  const bool clogging;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<Key, std::deque<Posted*>> sends;
  std::map<Key, std::deque<Posted*>> receives;
  std::vector<bool> closed;
  std::set<std::pair<int, int>> clogged;  ///< sender, receiver
  std::map<std::string, std::weak_ptr<World>> children;
};

class MemoryMessage final : public Message {
 public:
  MemoryMessage(std::shared_ptr<World> world, Key key, bool is_send, int rank, int peer)
      : world_(std::move(world)), key_(key), is_send_(is_send), rank_(rank), peer_(peer) {}
  MemoryMessage(const MemoryMessage&) = delete;
  MemoryMessage& operator=(const MemoryMessage&) = delete;
  ~MemoryMessage() override {
    const std::lock_guard lock(world_->mutex);
    auto& queue = (is_send_ ? world_->sends : world_->receives)[key_];
    queue.erase(std::remove(queue.begin(), queue.end(), &posted), queue.end());
    if (world_->clogging && is_send_ && !posted.through) world_->clogged.emplace(rank_, peer_);
  }

  bool wait(bool) override {
    std::unique_lock lock(world_->mutex);
    world_->changed.wait(lock, [&] { return posted.through || posted.nudged || lost(); });
    if (std::exchange(posted.nudged, false)) return false;
    if (posted.through) return true;
    throw PeerLost("rank " + std::to_string(peer_) + " has closed its end");
  }
  void nudge() noexcept override {
    const std::lock_guard lock(world_->mutex);
    posted.nudged = true;
    world_->changed.notify_all();
  }
  int source() const noexcept override { return posted.source; }

  Posted posted;

 private:
  bool lost() const {
    const auto is_closed = [&](int r) { return r >= 0 && world_->closed[static_cast<std::size_t>(r)]; };
    return is_closed(rank_) || is_closed(peer_);
  }

  const std::shared_ptr<World> world_;
  const Key key_;
  const bool is_send_;
  const int rank_;
  const int peer_;
};

class MemoryEngine final : public Engine {
 public:
  MemoryEngine(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}

  std::string name() const override { return "memory"; }
  int rank() const override { return rank_; }
  int size() const override { return world_->size; }

  std::unique_ptr<Message> send(int to, MessageAddress address, const std::byte* data, std::size_t bytes) override {
    auto message = post(to, {to, address.channel, address.number}, true);
    message->posted.source = rank_;
    message->posted.from = data;
    message->posted.bytes = bytes;
    meet(message->posted, {to, address.channel, address.number}, true);
    return message;
  }
  std::unique_ptr<Message> receive(int from, MessageAddress address, std::byte* data, std::size_t room) override {
    auto message = post(from, {rank_, address.channel, address.number}, false);
    message->posted.source = from;
    message->posted.to = data;
    message->posted.bytes = room;
    meet(message->posted, {rank_, address.channel, address.number}, false);
    return message;
  }
  std::unique_ptr<Message> receive_any(MessageAddress address, std::byte* data, std::size_t room) override {
    return receive(-1, address, data, room);
  }

  void check(int rank) override {
    const std::lock_guard lock(world_->mutex);
    if (world_->closed[static_cast<std::size_t>(rank)]) throw PeerLost("closed");
  }
  void left(int) noexcept override {}
  void close() noexcept override {
    const std::lock_guard lock(world_->mutex);
    world_->closed[static_cast<std::size_t>(rank_)] = true;
    world_->changed.notify_all();
  }
  std::shared_ptr<Engine> subset(const std::vector<int>& ranks, const std::string& name, Milliseconds) override {
    const std::lock_guard lock(world_->mutex);
    std::shared_ptr<World> child = world_->children[name].lock();
    if (!child)
      world_->children[name] = child = std::make_shared<World>(static_cast<int>(ranks.size()), world_->clogging);
    const auto own = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_shared<MemoryEngine>(child, static_cast<int>(own));
  }

 private:
  std::unique_ptr<MemoryMessage> post(int peer, Key key, bool is_send) {
    if (peer >= 0) check(peer);
    check(rank_);
    return std::make_unique<MemoryMessage>(world_, key, is_send, rank_, peer);
  }

  bool match(const Posted& receive, const Posted& send, int receiver) const {
    if (world_->clogged.contains({send.source, receiver})) return false;
    return receive.source < 0 || receive.source == send.source;
  }

  void meet(Posted& mine, Key key, bool is_send) {
    const std::lock_guard lock(world_->mutex);
    auto& others = (is_send ? world_->receives : world_->sends)[key];
    const auto found = std::find_if(others.begin(), others.end(), [&](const Posted* other) {
      return is_send ? match(*other, mine, std::get<0>(key)) : match(mine, *other, rank_);
    });
    if (found == others.end()) {
      (is_send ? world_->sends : world_->receives)[key].push_back(&mine);
      return;
    }
    Posted& other = **found;
    others.erase(found);
    Posted& receive = is_send ? other : mine;
    const Posted& sent = is_send ? mine : other;
    if (sent.bytes > receive.bytes) std::abort();  // the backend guarantees that messages fit
    std::memcpy(receive.to, sent.from, sent.bytes);
    receive.source = sent.source;
    mine.through = other.through = true;
    world_->changed.notify_all();
  }

  const std::shared_ptr<World> world_;
  const int rank_;
};

}  // namespace

std::vector<std::shared_ptr<Engine>> make_memory_engines(int size, bool clogging) {
  const auto world = std::make_shared<World>(size, clogging);
  std::vector<std::shared_ptr<Engine>> engines;
  for (int r = 0; r < size; ++r) engines.push_back(std::make_shared<MemoryEngine>(world, r));
  return engines;
}

}  // namespace hookline::testing
