// The hierarchical backend. With one rank on each host it forwards operations to the transport.
#include "backend/hierarchical/make_hierarchical.hpp"

#include <algorithm>
#include <future>
#include <numeric>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/bootstrap.hpp"
#include "backend/hierarchical/hierarchical_context.hpp"

namespace hookline::hierarchical {
namespace {

class HierarchicalBackend final : public Backend {
 public:
  HierarchicalBackend(SubBackends sub_backends, SubBackendFactory factory)
      : context_(std::make_shared<HierarchicalContext>(std::move(sub_backends))), factory_(std::move(factory)) {}
  HierarchicalBackend(const HierarchicalBackend&) = delete;
  HierarchicalBackend& operator=(const HierarchicalBackend&) = delete;
  ~HierarchicalBackend() override { context_->close(); }

  std::string name() const override { return "hierarchical"; }
  int rank() const override { return sub_backends().rank; }
  int size() const override { return sub_backends().size; }
  Capabilities capabilities() const override {
    return {.lanes = context_->lanes(), .shared_buffers = true, .hierarchical = is_hierarchical()};
  }

  WorkPtr start(Operation&& operation, int lane, Milliseconds timeout) override {
    if (!is_hierarchical()) return sub_backends().global->start(std::move(operation), lane, timeout);
    return context_->start(std::move(operation), lane, timeout);
  }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return sub_backends().intra_host->allocate(bytes); }

  std::shared_ptr<Backend> new_subgroup(const std::vector<int>& ranks, const std::string& name,
                                        Milliseconds timeout) override {
    context_->refuse_in_forked_child("new_group");
    const auto to_parent_ranks = [ranks](const std::vector<int>& sub_ranks) {
      std::vector<int> parent_ranks;
      parent_ranks.reserve(sub_ranks.size());
      for (const int r : sub_ranks) parent_ranks.push_back(ranks[static_cast<std::size_t>(r)]);
      return parent_ranks;
    };
    const auto own = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    // Names of sub-backends are unique only within their group, so they get the group's name as a prefix.
    const auto with_prefix = [to_parent_ranks, name](const MakeSubBackend& make) {
      return [make, to_parent_ranks, name](const std::vector<int>& sub_ranks, const std::string& sub_name,
                                           Milliseconds sub_timeout) {
        return make(to_parent_ranks(sub_ranks), name + "/" + sub_name, sub_timeout);
      };
    };
    const SubBackendFactory factory = {.intra_host = with_prefix(factory_.intra_host),
                                       .inter_host = with_prefix(factory_.inter_host)};
    return make_hierarchical(sub_topology(sub_backends().topology, ranks, own), own, factory, timeout);
  }

  void abort(const std::string& cause) override {
    context_->refuse_in_forked_child("abort");
    if (!is_hierarchical()) return sub_backends().global->abort(cause);
    const std::exception_ptr existing_error = context_->error();  // an earlier failure of a sub-backend comes first
    context_->fail(existing_error
                       ? existing_error
                       : std::make_exception_ptr(Aborted(
                             fmt::format("rank {} aborted the hierarchical group: {}", rank(), cause), {rank()})));
  }
  void shutdown() override { context_->close(); }
  std::exception_ptr error() const override { return context_->error(); }
  std::vector<int> dead_ranks() override {
    std::vector<int> dead = sub_backends().global->dead_ranks();
    for (const int r : map_ranks(sub_backends().intra_host->dead_ranks(), sub_backends().topology.local_ranks())) {
      if (std::find(dead.begin(), dead.end(), r) == dead.end()) dead.push_back(r);
    }
    return dead;
  }

 private:
  const SubBackends& sub_backends() const { return context_->sub_backends(); }
  bool is_hierarchical() const { return sub_backends().topology.max_local_size > 1; }

  const std::shared_ptr<HierarchicalContext> context_;
  const SubBackendFactory factory_;
};

// Blocks until all ranks have created their sub-backends. Ranks with fewer of them would otherwise start the timeout of
// their first operation early. A rank may die before the barrier can detect it, so this polls check_bootstrap().
void await_all_ranks(const SubBackends& sub_backends, Milliseconds timeout) {
  const WorkPtr barrier = sub_backends.global->start({.type = OpType::barrier}, 0, timeout);
  const auto done = std::make_shared<std::promise<void>>();
  const std::future<void> completion = done->get_future();
  barrier->on_complete([done] { done->set_value(); }, Urgency::high);
  while (completion.wait_for(kInterruptPeriod) != std::future_status::ready) backend::check_bootstrap();
  barrier->wait();
}

}  // namespace

std::shared_ptr<Backend> make_hierarchical(const Topology& topology, int rank, const SubBackendFactory& factory,
                                           Milliseconds timeout) {
  const Clock::time_point deadline = deadline_after(timeout);
  auto intra_host = factory.intra_host(topology.local_ranks(), fmt::format("host{}", topology.host), timeout);
  if (topology.hosts.size() == 1) return intra_host;
  SubBackends sub_backends{.rank = rank, .size = 0, .topology = topology, .intra_host = std::move(intra_host)};
  for (const std::vector<int>& ranks : topology.hosts) sub_backends.size += static_cast<int>(ranks.size());
  sub_backends.all_ranks.resize(static_cast<std::size_t>(sub_backends.size));
  std::iota(sub_backends.all_ranks.begin(), sub_backends.all_ranks.end(), 0);
  sub_backends.global = factory.inter_host(sub_backends.all_ranks, "all", time_left(deadline));
  if (topology.max_local_size > 1 && topology.owns_slice()) {
    sub_backends.inter_host = factory.inter_host(topology.owners(topology.local_rank),
                                                 fmt::format("slice{}", topology.local_rank), time_left(deadline));
  }
  if (topology.max_local_size > 1) await_all_ranks(sub_backends, time_left(deadline));
  return std::make_shared<HierarchicalBackend>(std::move(sub_backends), factory);
}

}  // namespace hookline::hierarchical
