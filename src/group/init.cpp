// init_process_group: rendezvous, epoch in the store, backend, then the wrappers of HOOKLINE_DEBUG.
#include <hookline/group/init.hpp>

#include <cstdlib>
#include <exception>
#include <functional>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include <hookline/backend/hierarchical.hpp>
#include <hookline/backend/make_backend.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/prefix_store.hpp>
#include <hookline/store/rendezvous.hpp>

#include "backend/bootstrap.hpp"
#include "group/debug_wrappers.hpp"
#include "group/group_origin.hpp"
#include "group/rendezvous_epoch.hpp"
#include "store/store_error.hpp"

namespace hookline {
namespace {

constexpr const char* kEndedRanks = "hookline/ended";  // also in cli/rendezvous_dir.py

std::shared_ptr<ProcessGroup> make_decorated_group(const InitOptions& options, const TransportConfig& setting) {
  auto backend = options.backend.empty() ? make_default_backend(setting) : make_backend(options.backend, setting);
  const char* const debug = std::getenv("HOOKLINE_DEBUG");
  auto process_group =
      group::make_group(std::move(backend), options.timeout, {.store = setting.store, .global_ranks = {}});
  return group::with_debug_wrappers(std::move(process_group), debug ? debug : "", setting.store);
}

// If the store is lost, blames the rank that served it: this rank does not watch other processes yet.
group::RendezvousEpoch join_epoch(const Rendezvous& job) {
  try {
    return {job.store, job.rank};
  } catch (const PeerLost& e) {
    if (!e.ranks().empty() || job.server_rank < 0 || job.server_rank == job.rank) throw;
    throw PeerLost(fmt::format("init_process_group on rank {}: rank {} died during group creation. Create a new group "
                               "without it.",
                               job.rank, job.server_rank),
                   {job.server_rank}, std::current_exception());
  }
}

// Returns the ranks that `hookline run` has published because they ended with exit code 0. If a rank ends in any other
// way, `hookline run` ends the job.
std::vector<int> ended_ranks(Store& store) {
  std::vector<int> ranks;
  if (!store.check({kEndedRanks})) return ranks;
  std::istringstream text(store.get(kEndedRanks));
  for (int rank = 0; text >> rank;) ranks.push_back(rank);
  return ranks;
}

void abandon_epoch(group::RendezvousEpoch& epoch) noexcept {
  try {
    epoch.abandon();
  } catch (const std::exception&) {
    // The store failed too; the original error is more useful to the caller.
  }
}

}  // namespace

std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options) {
  if (!options.backend.empty()) check_backend(options.backend);
  if (options.timeout <= Milliseconds(0))
    throw InvalidArgument(
        fmt::format("init_process_group: expected a timeout above 0 ms, got {} ms", options.timeout.count()));
  Rendezvous job;
  if (!options.store) {
    job = rendezvous(options.init_method, options.rank, options.world_size, options.timeout);
  } else if (options.rank && options.world_size) {
    store::check_world_size_range("init_process_group", "world_size", *options.world_size);
    if (*options.rank < 0 || *options.rank >= *options.world_size) {
      throw InvalidArgument(fmt::format("init_process_group: rank is out of range: expected 0 to {}, got {}",
                                        *options.world_size - 1, *options.rank));
    }
    job = {.store = options.store, .rank = *options.rank, .world_size = *options.world_size, .local_rank = -1};
  } else {
    throw InvalidArgument("init_process_group: rank and world_size are required with a store");
  }
  group::RendezvousEpoch epoch = join_epoch(job);
  std::function<std::vector<int>()> ended;
  if (!options.store && !options.rank && !options.world_size) ended = [&job] { return ended_ranks(*job.store); };
  try {
    backend::Bootstrap bootstrap({.operation = "init_process_group",
                                  .rank = job.rank,
                                  .size = job.world_size,
                                  .members = {},
                                  .store = std::make_shared<PrefixStore>("bootstrap", epoch.store()),
                                  .ended = ended,
                                  .store_rank = job.server_rank,
                                  .delete_keys = [&] { epoch.delete_earlier_keys(); }});
    return bootstrap.run([&] {
      return make_decorated_group(options, {.store = epoch.store(),
                                            .rank = job.rank,
                                            .size = job.world_size,
                                            .timeout = options.timeout,
                                            .options = options.backend_options});
    });
  } catch (...) {
    abandon_epoch(epoch);
    throw;
  }
}

}  // namespace hookline
