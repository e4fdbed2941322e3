// The table of backend options. Each backend validates the values itself.
#include "backend/backend_options.hpp"

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
    Option{"shm", "wait_policy"}, Option{"hierarchical", "transport"}, Option{"gloo", "interface"},
    Option{"gloo", "address"},    Option{"mpi", "communicator"},
};

bool is_known(const std::string& backend) {
  return std::any_of(kOptions.begin(), kOptions.end(), [&](const Option& o) { return backend == o.backend; });
}

bool accepts(const std::string& backend, const std::string& option) {
  return !is_known(backend) || std::any_of(kOptions.begin(), kOptions.end(),
                                           [&](const Option& o) { return backend == o.backend && option == o.name; });
}

}  // namespace

void check_options(const std::vector<std::string>& backends, const Options& options) {
  for (const auto& [name, value] : options) {
    const auto accepts_it = [&option = name](const std::string& backend) { return accepts(backend, option); };
    if (std::any_of(backends.begin(), backends.end(), accepts_it)) continue;
    std::vector<std::string> accepted;
    for (const Option& o : kOptions) {
      if (std::find(backends.begin(), backends.end(), o.backend) == backends.end()) continue;
      accepted.push_back(fmt::format("{} ({})", o.name, o.backend));
    }
    throw InvalidArgument(fmt::format("backend_options for {}: unknown option '{}={}': expected one of {}",
                                      fmt::join(backends, ", "), name, value, fmt::join(accepted, ", ")));
  }
}

Options options_accepted_by(const std::string& backend, const Options& options) {
  Options accepted;
  for (const auto& [name, value] : options) {
    if (accepts(backend, name)) accepted.emplace(name, value);
  }
  return accepted;
}

}  // namespace hookline::backend
