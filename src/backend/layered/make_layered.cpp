// The hierarchical backend. With one rank on each host it forwards operations to the transport.
#include "backend/layered/make_layered.hpp"

#include <algorithm>
#include <future>
#include <numeric>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/bootstrap.hpp"
#include "backend/layered/layers.hpp"

namespace hookline::layered {
namespace {

class LayeredBackend final : public Backend {
 public:
  LayeredBackend(Levels levels, Makers makers)
      : layers_(std::make_shared<Layers>(std::move(levels))), makers_(std::move(makers)) {}
  LayeredBackend(const LayeredBackend&) = delete;
  LayeredBackend& operator=(const LayeredBackend&) = delete;
  ~LayeredBackend() override { layers_->close(); }

  std::string name() const override { return "layered"; }
  int rank() const override { return levels().rank; }
  int size() const override { return levels().size; }
  Capabilities capabilities() const override {
    return {.lanes = layers_->lanes(), .shared_buffers = true, .levels = has_levels()};
  }

  WorkPtr start(Collective&& collective, int lane, Milliseconds timeout) override {
    if (!has_levels()) return levels().flat->start(std::move(collective), lane, timeout);
    return layers_->start(std::move(collective), lane, timeout);
  }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return levels().inner->allocate(bytes); }

  std::shared_ptr<Backend> subset(const std::vector<int>& ranks, const std::string& name,
                                  Milliseconds timeout) override {
    layers_->refuse_in_forked_child("new_group");
    const auto whole = [ranks](const std::vector<int>& some) {
      std::vector<int> numbers;
      numbers.reserve(some.size());
      for (const int r : some) numbers.push_back(ranks[static_cast<std::size_t>(r)]);
      return numbers;
    };
    const auto own = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    // Names of sub-backends are unique only within their group, so they get the group's name as a prefix.
    const auto through = [whole, name](const MakePart& make) {
      return [make, whole, name](const std::vector<int>& some, const std::string& part, Milliseconds time) {
        return make(whole(some), name + "/" + part, time);
      };
    };
    const Makers makers = {.inside = through(makers_.inside), .between = through(makers_.between)};
    return make_layered(part_of(levels().topology, ranks, own), own, makers, timeout);
  }

  void abort(const std::string& cause) override {
    layers_->refuse_in_forked_child("abort");
    if (!has_levels()) return levels().flat->abort(cause);
    const std::exception_ptr first = layers_->broken();  // an earlier failure of a sub-backend comes first
    layers_->fail(first ? first
                        : std::make_exception_ptr(Aborted(
                              fmt::format("rank {} aborted the hierarchical group: {}", rank(), cause), {rank()})));
  }
  void shutdown() override { layers_->close(); }
  std::exception_ptr broken() const override { return layers_->broken(); }
  std::vector<int> dead_ranks() override {
    std::vector<int> dead = levels().flat->dead_ranks();
    for (const int r : group_ranks(levels().inner->dead_ranks(), levels().topology.here())) {
      if (std::find(dead.begin(), dead.end(), r) == dead.end()) dead.push_back(r);
    }
    return dead;
  }

 private:
  const Levels& levels() const { return layers_->levels(); }
  bool has_levels() const { return levels().topology.most > 1; }

  const std::shared_ptr<Layers> layers_;
  const Makers makers_;
};

// Blocks until all ranks have created their sub-backends. Ranks with fewer of them would otherwise start the timeout of
// their first operation early. A rank may die before the barrier can detect it, so this polls check_bootstrap().
void await_all(const Levels& levels, Milliseconds timeout) {
  const WorkPtr barrier = levels.flat->start({.type = OpType::barrier}, 0, timeout);
  const auto over = std::make_shared<std::promise<void>>();
  const std::future<void> is_over = over->get_future();
  barrier->when_over([over] { over->set_value(); }, true);
  while (is_over.wait_for(kInterruptPeriod) != std::future_status::ready) backend::check_bootstrap();
  barrier->wait();
}

}  // namespace

std::shared_ptr<Backend> make_layered(const Topology& topology, int rank, const Makers& makers, Milliseconds timeout) {
  const Clock::time_point deadline = deadline_after(timeout);
  auto inner = makers.inside(topology.here(), fmt::format("host{}", topology.host), timeout);
  if (topology.hosts.size() == 1) return inner;
  Levels levels{.rank = rank, .size = 0, .topology = topology, .inner = std::move(inner)};
  for (const std::vector<int>& ranks : topology.hosts) levels.size += static_cast<int>(ranks.size());
  levels.all.resize(static_cast<std::size_t>(levels.size));
  std::iota(levels.all.begin(), levels.all.end(), 0);
  levels.flat = makers.between(levels.all, "all", time_left(deadline));
  if (topology.most > 1 && topology.owns_slice()) {
    levels.slice =
        makers.between(topology.owners(topology.place), fmt::format("slice{}", topology.place), time_left(deadline));
  }
  if (topology.most > 1) await_all(levels, time_left(deadline));
  return std::make_shared<LayeredBackend>(std::move(levels), makers);
}

}  // namespace hookline::layered
