// The table of backends; creates a backend by name.
#include <hookline/backend/make_backend.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/backend/hierarchical.hpp>
#include <hookline/backend/shm.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/store.hpp>

#include "backend/p2p/load_transport.hpp"

namespace hookline {
namespace {

std::shared_ptr<Backend> make_shm(const TransportConfig& config) {
  WaitPolicy policy = WaitPolicy::spin;
  for (const auto& [option, value] : config.options) {
    if (option != "wait_policy" || (value != "spin" && value != "block")) {
      throw InvalidArgument(fmt::format(
          "backend_options of shm: expected wait_policy=spin or wait_policy=block, got '{}={}'", option, value));
    }
    if (value == "block") policy = WaitPolicy::block;
  }
  return make_shm_backend(config.store, config.rank, config.size, config.timeout, policy);
}

struct BackendEntry {
  const char* name;
  std::shared_ptr<Backend> (*make)(const TransportConfig&);  ///< null for a transport
  const char* package;                                       ///< Debian package that a transport needs
};

constexpr std::array kBackends = {
    BackendEntry{"shm", make_shm, ""},
    BackendEntry{"hierarchical", make_hierarchical_backend, ""},
    BackendEntry{"gloo", nullptr, "libgloo-dev"},
    BackendEntry{"mpi", nullptr, "libopenmpi-dev"},
};

const BackendEntry* find_backend(const std::string& name) {
  const auto* const found =
      std::find_if(kBackends.begin(), kBackends.end(), [&](const BackendEntry& k) { return name == k.name; });
  return found != kBackends.end() ? found : nullptr;
}

p2p::MakeTransport* find_transport(const std::string& name) {
  if (const BackendEntry* const known = find_backend(name))
    return p2p::load_transport(name, fmt::format("Debian's {}", known->package));
  const bool is_valid_name = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_';
  });
  const auto paths = is_valid_name ? p2p::library_paths(name) : std::vector<std::filesystem::path>();
  std::error_code ignored;
  if (std::none_of(paths.begin(), paths.end(), [&](const auto& p) { return std::filesystem::exists(p, ignored); })) {
    throw InvalidArgument(
        fmt::format("unknown backend '{}': expected one of {}", name, fmt::join(backend_names(), ", ")));
  }
  return p2p::load_transport(name, "its dependencies");
}

}  // namespace

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  names.reserve(kBackends.size());
  for (const BackendEntry& known : kBackends) names.emplace_back(known.name);
  return names;
}

void check_backend(const std::string& name) {
  const BackendEntry* const known = find_backend(name);
  if (!known || !known->make) find_transport(name);
}

std::shared_ptr<Backend> make_backend(const std::string& name, const TransportConfig& config) {
  const BackendEntry* const known = find_backend(name);
  if (known && known->make) return known->make(config);
  p2p::MakeTransport* const make = find_transport(name);
  if (config.size < 1 || config.rank < 0 || config.rank >= config.size) {
    throw InvalidArgument(
        fmt::format("{} group: rank {} is out of range for {} ranks", name, config.rank, config.size));
  }
  TransportConfig complete_config = config;
  if (complete_config.route_hint.empty() && config.store) complete_config.route_hint = config.store->host();
  std::shared_ptr<Transport> transport;
  make(&complete_config, &transport);
  return make_transport_backend(std::move(transport));
}

}  // namespace hookline
