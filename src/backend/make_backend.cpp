// The table of backends.
#include <hookline/backend/make_backend.hpp>

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/backend/shm.hpp>
#include <hookline/core/error.hpp>

#include "backend/engine/load.hpp"

namespace hookline {
namespace {

std::shared_ptr<Backend> make_shm(const EngineSetting& setting) {
  return make_shm_backend(setting.store, setting.rank, setting.size, setting.timeout);
}

struct Known {
  const char* name;
  std::shared_ptr<Backend> (*make)(const EngineSetting&);  ///< null for an engine
  const char* package;                                     ///< Debian's, of what an engine needs
};

constexpr std::array kKnown = {
    Known{"shm", make_shm, ""},
    Known{"gloo", nullptr, "libgloo-dev"},
    Known{"mpi", nullptr, "libopenmpi-dev"},
};

}  // namespace

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const Known& known : kKnown) names.emplace_back(known.name);
  return names;
}

std::shared_ptr<Backend> make_backend(const std::string& name, const EngineSetting& setting) {
  const auto* const known = std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& k) { return name == k.name; });
  const bool ours = known != kKnown.end();
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(),
                                                  [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  if (!plain) {
    throw InvalidArgument(
        fmt::format("no backend is called '{}'; there are: {}", name, fmt::join(backend_names(), ", ")));
  }
  if (ours && known->make) return known->make(setting);
  if (setting.size < 1 || setting.rank < 0 || setting.rank >= setting.size) {
    throw InvalidArgument(fmt::format("rank {} of a {} group of {}", setting.rank, name, setting.size));
  }
  if (ours) return make_engine_backend(engine::load(name, fmt::format("Debian's {}", known->package), setting));
  try {
    return make_engine_backend(engine::load(name, "its library", setting));
  } catch (const Unsupported& e) {
    throw InvalidArgument(
        fmt::format("no backend is called '{}'; there are: {}. {}", name, fmt::join(backend_names(), ", "), e.what()));
  }
}

}  // namespace hookline
