// The table of backends; creates a backend by name.
#include <hookline/backend/make_backend.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/backend/layered.hpp>
#include <hookline/backend/shm.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/store.hpp>

#include "backend/engine/load.hpp"

namespace hookline {
namespace {

std::shared_ptr<Backend> make_shm(const EngineSetting& setting) {
  ShmWaiting waiting = ShmWaiting::spin;
  for (const auto& [option, value] : setting.options) {
    if (option != "waiting" || (value != "spin" && value != "sleep")) {
      throw InvalidArgument(
          fmt::format("backend_options of shm: expected waiting=spin or waiting=sleep, got '{}={}'", option, value));
    }
    if (value == "sleep") waiting = ShmWaiting::sleep;
  }
  return make_shm_backend(setting.store, setting.rank, setting.size, setting.timeout, waiting);
}

struct Known {
  const char* name;
  std::shared_ptr<Backend> (*make)(const EngineSetting&);  ///< null for a transport
  const char* package;                                     ///< Debian package that a transport needs
};

constexpr std::array kKnown = {
    Known{"shm", make_shm, ""},
    Known{"layered", make_layered_backend, ""},
    Known{"gloo", nullptr, "libgloo-dev"},
    Known{"mpi", nullptr, "libopenmpi-dev"},
};

const Known* find(const std::string& name) {
  const auto* const found = std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& k) { return name == k.name; });
  return found != kKnown.end() ? found : nullptr;
}

engine::MakeEngine* find_engine(const std::string& name) {
  if (const Known* const known = find(name)) return engine::load(name, fmt::format("Debian's {}", known->package));
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(),
                                                  [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  const auto places = plain ? engine::places(name) : std::vector<std::filesystem::path>();
  std::error_code ignored;
  if (std::none_of(places.begin(), places.end(), [&](const auto& p) { return std::filesystem::exists(p, ignored); })) {
    throw InvalidArgument(
        fmt::format("unknown backend '{}': expected one of {}", name, fmt::join(backend_names(), ", ")));
  }
  return engine::load(name, "its dependencies");
}

}  // namespace

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  names.reserve(kKnown.size());
  for (const Known& known : kKnown) names.emplace_back(known.name);
  return names;
}

void check_backend(const std::string& name) {
  const Known* const known = find(name);
  if (!known || !known->make) find_engine(name);
}

std::shared_ptr<Backend> make_backend(const std::string& name, const EngineSetting& setting) {
  const Known* const known = find(name);
  if (known && known->make) return known->make(setting);
  engine::MakeEngine* const make = find_engine(name);
  if (setting.size < 1 || setting.rank < 0 || setting.rank >= setting.size) {
    throw InvalidArgument(
        fmt::format("{} group: rank {} is out of range for {} ranks", name, setting.rank, setting.size));
  }
  EngineSetting complete = setting;
  if (complete.reach.empty() && setting.store) complete.reach = setting.store->host();
  std::shared_ptr<Engine> engine;
  make(&complete, &engine);
  return make_engine_backend(std::move(engine));
}

}  // namespace hookline
