// Creates hierarchical groups: finds the hosts of all ranks through the store, and creates the sub-backends by name.
#include <hookline/backend/layered.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <hookline/backend/make_backend.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/prefix_store.hpp>

#include "backend/bootstrap.hpp"
#include "backend/host.hpp"
#include "backend/layered/make_layered.hpp"
#include "backend/meeting.hpp"
#include "backend/mpi_launcher.hpp"
#include "backend/options.hpp"

namespace hookline {
namespace layered {
namespace {

constexpr const char* kDefaultEngine = "gloo";
constexpr const char* kMpi = "mpi";

struct Meeting {
  std::vector<std::string> hosts;    ///< host identity of each rank
  std::vector<std::string> engines;  ///< transport requested by each rank
};

Meeting meet(const EngineSetting& setting, const std::string& engine, Clock::time_point deadline) {
  Meeting meeting;
  for (const std::string& said : backend::meet(*setting.store, "layered", setting.rank, setting.size,
                                               backend::host_identity() + "\n" + engine, deadline)) {
    const std::size_t end = said.find('\n');
    meeting.hosts.push_back(said.substr(0, end));
    meeting.engines.push_back(end == std::string::npos ? "" : said.substr(end + 1));
  }
  return meeting;
}

// Creates a backend of some ranks, which rendezvous under a prefix of the store.
std::shared_ptr<Backend> make_part(const std::string& backend, const EngineSetting& whole,
                                   const std::vector<int>& ranks, const std::string& name, Milliseconds timeout) {
  const backend::PartScope part(ranks);
  EngineSetting setting;
  setting.store = std::make_shared<PrefixStore>(name, whole.store);
  setting.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), whole.rank) - ranks.begin());
  setting.size = static_cast<int>(ranks.size());
  setting.timeout = timeout;
  if (backend == "shm") {
    setting.options = {{"waiting", "sleep"}};  // a message between hosts takes longer than a wake-up
  } else {
    setting.options = whole.options;
    setting.reach = whole.reach;
  }
  return make_backend(backend, setting);
}

std::shared_ptr<Backend> make(EngineSetting setting, const std::vector<std::string>& hosts, const std::string& engine,
                              Clock::time_point deadline) {
  setting.options = backend::options_of(engine, setting.options);
  setting.options.erase("engine");
  // All other inter-host backends are subgroups of the global one, as MPI requires.
  const auto all = std::make_shared<std::shared_ptr<Backend>>();
  const Makers makers = {
      .inside = [setting](const std::vector<int>& ranks, const std::string& name,
                          Milliseconds timeout) { return make_part("shm", setting, ranks, name, timeout); },
      .between =
          [setting, engine, all](const std::vector<int>& ranks, const std::string& name, Milliseconds timeout) {
            if (*all) {
              const backend::PartScope part(ranks);
              return (*all)->subset(ranks, name, timeout);
            }
            *all = make_part(engine, setting, ranks, name, timeout);
            return *all;
          }};
  return make_layered(make_topology(hosts, setting.rank), setting.rank, makers, time_left(deadline));
}

void check_setting(const EngineSetting& setting) {
  if (setting.size < 1 || setting.rank < 0 || setting.rank >= setting.size) {
    throw InvalidArgument(fmt::format("hierarchical group of {} ranks: rank out of range: expected 0 to {}, got {}",
                                      setting.size, setting.size - 1, setting.rank));
  }
  if (!setting.store) throw InvalidArgument("hierarchical group: missing store: pass the store of the rendezvous");
}

// Returns the transport named by the options, if any. It need not be installed, since a group on one host needs none.
std::optional<std::string> named_engine(const EngineSetting& setting) {
  const auto given = setting.options.find("engine");
  if (given == setting.options.end()) return std::nullopt;
  const std::string& engine = given->second;
  if (engine == "layered") {
    throw InvalidArgument(
        "hierarchical group: the option transport is invalid: expected a transport, got hierarchical");
  }
  const std::vector<std::string> known = backend_names();
  if (std::find(known.begin(), known.end(), engine) == known.end()) check_backend(engine);
  return engine;
}

void check_same_engine(const Meeting& meeting, int rank, const std::string& engine) {
  for (std::size_t r = 0; r < meeting.engines.size(); ++r) {
    if (meeting.engines[r] == engine) continue;
    throw InvalidArgument(
        fmt::format("hierarchical group on rank {} of {}: transports differ: expected {}, got {} on rank {}. Pass the "
                    "same transport on all ranks.",
                    rank, meeting.engines.size(), engine, meeting.engines[r], r));
  }
}

}  // namespace
}  // namespace layered

std::shared_ptr<Backend> make_layered_backend(const EngineSetting& setting) {
  layered::check_setting(setting);
  const Clock::time_point deadline = deadline_after(setting.timeout);
  const std::string engine = layered::named_engine(setting).value_or(layered::kDefaultEngine);
  backend::check_options({"layered", engine}, setting.options);
  const layered::Meeting meeting = layered::meet(setting, engine, deadline);
  layered::check_same_engine(meeting, setting.rank, engine);
  return layered::make(setting, meeting.hosts, engine, deadline);
}

std::shared_ptr<Backend> make_default_backend(const EngineSetting& setting) {
  layered::check_setting(setting);
  const Clock::time_point deadline = deadline_after(setting.timeout);
  const std::optional<std::string> named = layered::named_engine(setting);
  std::vector<std::string> possible = {"shm", "layered"};
  if (named) possible.push_back(*named);
  else possible.insert(possible.end(), {layered::kDefaultEngine, layered::kMpi});
  backend::check_options(possible, setting.options);
  std::string engine = backend::is_started_by_mpirun(setting.size) ? layered::kMpi : layered::kDefaultEngine;
  if (named) engine = *named;

  const layered::Meeting meeting = layered::meet(setting, engine, deadline);
  const auto all_say = [](const std::vector<std::string>& said, const std::string& text) {
    return std::all_of(said.begin(), said.end(), [&](const std::string& each) { return each == text; });
  };
  if (all_say(meeting.hosts, meeting.hosts[0])) {
    EngineSetting here = setting;
    here.timeout = time_left(deadline);
    here.options = backend::options_of("shm", setting.options);
    return make_backend("shm", here);
  }
  if (named) layered::check_same_engine(meeting, setting.rank, engine);
  else if (!all_say(meeting.engines, layered::kMpi)) engine = layered::kDefaultEngine;
  return layered::make(setting, meeting.hosts, engine, deadline);
}

}  // namespace hookline
