// Creates hierarchical groups: finds the hosts of all ranks through the store, and creates the sub-backends by name.
#include <hookline/backend/hierarchical.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <hookline/backend/make_backend.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/prefix_store.hpp>

#include "backend/backend_options.hpp"
#include "backend/bootstrap.hpp"
#include "backend/hierarchical/make_hierarchical.hpp"
#include "backend/host.hpp"
#include "backend/mpi_launcher.hpp"
#include "backend/store_allgather.hpp"

namespace hookline {
namespace hierarchical {
namespace {

constexpr const char* kDefaultTransport = "gloo";
constexpr const char* kMpiTransport = "mpi";

struct GroupInfo {
  std::vector<std::string> host_ids;    ///< host identity of each rank
  std::vector<std::string> transports;  ///< transport requested by each rank
};

GroupInfo exchange_group_info(const TransportConfig& config, const std::string& transport, Clock::time_point deadline) {
  GroupInfo info;
  for (const std::string& value : backend::store_allgather(*config.store, "hierarchical", config.rank, config.size,
                                                           backend::host_identity() + "\n" + transport, deadline)) {
    const std::size_t end = value.find('\n');
    info.host_ids.push_back(value.substr(0, end));
    info.transports.push_back(end == std::string::npos ? "" : value.substr(end + 1));
  }
  return info;
}

// Creates a backend of some ranks, which rendezvous under a prefix of the store.
std::shared_ptr<Backend> make_sub_backend(const std::string& backend, const TransportConfig& parent_config,
                                          const std::vector<int>& ranks, const std::string& name,
                                          Milliseconds timeout) {
  const backend::SubgroupScope scope(ranks);
  TransportConfig config;
  config.store = std::make_shared<PrefixStore>(name, parent_config.store);
  config.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), parent_config.rank) - ranks.begin());
  config.size = static_cast<int>(ranks.size());
  config.timeout = timeout;
  if (backend == "shm") {
    config.options = {{"wait_policy", "block"}};  // a message between hosts takes longer than a wake-up
  } else {
    config.options = parent_config.options;
    config.route_hint = parent_config.route_hint;
  }
  return make_backend(backend, config);
}

std::shared_ptr<Backend> make_group(TransportConfig config, const std::vector<std::string>& host_ids,
                                    const std::string& transport, Clock::time_point deadline) {
  config.options = backend::options_accepted_by(transport, config.options);
  config.options.erase("transport");
  // The first inter-host backend spans all ranks. The later ones are its subgroups, as MPI requires.
  const auto global = std::make_shared<std::shared_ptr<Backend>>();
  const SubBackendFactory factory = {
      .intra_host = [config](const std::vector<int>& ranks, const std::string& name,
                             Milliseconds timeout) { return make_sub_backend("shm", config, ranks, name, timeout); },
      .inter_host =
          [config, transport, global](const std::vector<int>& ranks, const std::string& name, Milliseconds timeout) {
            if (*global) {
              const backend::SubgroupScope scope(ranks);
              return (*global)->new_subgroup(ranks, name, timeout);
            }
            *global = make_sub_backend(transport, config, ranks, name, timeout);
            return *global;
          }};
  return make_hierarchical(make_topology(host_ids, config.rank), config.rank, factory, time_left(deadline));
}

void check_config(const TransportConfig& config) {
  if (config.size < 1 || config.rank < 0 || config.rank >= config.size) {
    throw InvalidArgument(fmt::format("hierarchical group of {} ranks: rank out of range: expected 0 to {}, got {}",
                                      config.size, config.size - 1, config.rank));
  }
  if (!config.store) throw InvalidArgument("hierarchical group: missing store: pass the store of the rendezvous");
}

// Returns the transport named by the options, if any. It need not be installed, since a group on one host needs none.
std::optional<std::string> requested_transport(const TransportConfig& config) {
  const auto option = config.options.find("transport");
  if (option == config.options.end()) return std::nullopt;
  const std::string& transport = option->second;
  if (transport == "hierarchical") {
    throw InvalidArgument(
        "hierarchical group: the option transport is invalid: expected a transport, got hierarchical");
  }
  const std::vector<std::string> known_backends = backend_names();
  if (std::find(known_backends.begin(), known_backends.end(), transport) == known_backends.end())
    check_backend(transport);
  return transport;
}

void check_same_transport(const GroupInfo& info, int rank, const std::string& transport) {
  for (std::size_t r = 0; r < info.transports.size(); ++r) {
    if (info.transports[r] == transport) continue;
    throw InvalidArgument(
        fmt::format("hierarchical group on rank {} of {}: transports differ: expected {}, got {} on rank {}. Pass the "
                    "same transport on all ranks.",
                    rank, info.transports.size(), transport, info.transports[r], r));
  }
}

}  // namespace
}  // namespace hierarchical

std::shared_ptr<Backend> make_hierarchical_backend(const TransportConfig& config) {
  hierarchical::check_config(config);
  const Clock::time_point deadline = deadline_after(config.timeout);
  const std::string transport = hierarchical::requested_transport(config).value_or(hierarchical::kDefaultTransport);
  backend::check_options({"hierarchical", transport}, config.options);
  const hierarchical::GroupInfo info = hierarchical::exchange_group_info(config, transport, deadline);
  hierarchical::check_same_transport(info, config.rank, transport);
  return hierarchical::make_group(config, info.host_ids, transport, deadline);
}

std::shared_ptr<Backend> make_default_backend(const TransportConfig& config) {
  hierarchical::check_config(config);
  const Clock::time_point deadline = deadline_after(config.timeout);
  const std::optional<std::string> requested = hierarchical::requested_transport(config);
  std::vector<std::string> candidates = {"shm", "hierarchical"};
  if (requested) candidates.push_back(*requested);
  else candidates.insert(candidates.end(), {hierarchical::kDefaultTransport, hierarchical::kMpiTransport});
  backend::check_options(candidates, config.options);
  std::string transport =
      backend::is_started_by_mpirun(config.size) ? hierarchical::kMpiTransport : hierarchical::kDefaultTransport;
  if (requested) transport = *requested;

  const hierarchical::GroupInfo info = hierarchical::exchange_group_info(config, transport, deadline);
  const auto all_equal = [](const std::vector<std::string>& values, const std::string& text) {
    return std::all_of(values.begin(), values.end(), [&](const std::string& each) { return each == text; });
  };
  if (all_equal(info.host_ids, info.host_ids[0])) {
    TransportConfig shm_config = config;
    shm_config.timeout = time_left(deadline);
    shm_config.options = backend::options_accepted_by("shm", config.options);
    return make_backend("shm", shm_config);
  }
  if (requested) hierarchical::check_same_transport(info, config.rank, transport);
  else if (!all_equal(info.transports, hierarchical::kMpiTransport)) transport = hierarchical::kDefaultTransport;
  return hierarchical::make_group(config, info.host_ids, transport, deadline);
}

}  // namespace hookline
