// The table of backend options. Each backend validates the values itself.
#include "backend/options.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

namespace hookline::backend {
namespace {

struct Option {
  const char* backend;
  const char* name;
};

constexpr std::array kOptions = {
    Option{"shm", "waiting"},  Option{"layered", "engine"},   Option{"gloo", "interface"},
    Option{"gloo", "address"}, Option{"mpi", "communicator"},
};

bool is_known(const std::string& backend) {
  return std::any_of(kOptions.begin(), kOptions.end(), [&](const Option& o) { return backend == o.backend; });
}

bool takes(const std::string& backend, const std::string& name) {
  return !is_known(backend) || std::any_of(kOptions.begin(), kOptions.end(),
                                           [&](const Option& o) { return backend == o.backend && name == o.name; });
}

}  // namespace

void check_options(const std::vector<std::string>& backends, const Options& options) {
  for (const auto& [name, value] : options) {
    const auto takes_it = [&option = name](const std::string& backend) { return takes(backend, option); };
    if (std::any_of(backends.begin(), backends.end(), takes_it)) continue;
    std::vector<std::string> taken;
    for (const Option& o : kOptions) {
      if (std::find(backends.begin(), backends.end(), o.backend) == backends.end()) continue;
      taken.push_back(fmt::format("{} ({})", o.name, o.backend));
    }
    throw InvalidArgument(fmt::format("backend_options for {}: unknown option '{}={}': expected one of {}",
                                      fmt::join(backends, ", "), name, value, fmt::join(taken, ", ")));
  }
}

Options options_of(const std::string& backend, const Options& options) {
  Options taken;
  for (const auto& [name, value] : options) {
    if (takes(backend, name)) taken.emplace(name, value);
  }
  return taken;
}

}  // namespace hookline::backend
