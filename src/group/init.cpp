// Rendezvous, then the backend of the name, then what HOOKLINE_DEBUG asks for.
#include <hookline/group/init.hpp>

#include <fmt/format.h>

#include <hookline/backend/shm.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/prefix_store.hpp>
#include <hookline/store/rendezvous.hpp>

#include "group/debug.hpp"

namespace hookline {

std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options) {
  if (options.backend != "shm") {
    throw InvalidArgument(fmt::format("no backend is called '{}' here; there is: shm", options.backend));
  }
  if (options.timeout <= Milliseconds(0))
    throw InvalidArgument("init_process_group: a timeout must be longer than 0 ms");
  Rendezvous job;
  if (!options.store) {
    job = rendezvous(options.init_method, options.rank, options.world_size, options.timeout);
  } else if (options.rank && options.world_size) {
    job = {options.store, *options.rank, *options.world_size, -1};
  } else {
    throw InvalidArgument("init_process_group with a store needs rank and world_size too");
  }
  auto store = std::make_shared<PrefixStore>("hookline", job.store);
  auto backend = make_shm_backend(store, job.rank, job.world_size, options.timeout);
  return group::decorated_by_environment(make_group(std::move(backend), options.timeout), store);
}

}  // namespace hookline
