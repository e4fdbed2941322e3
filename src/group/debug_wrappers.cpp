// Debug wrappers selected by HOOKLINE_DEBUG.
#include "group/debug_wrappers.hpp"

#include <sstream>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/group/collective_checks.hpp>
#include <hookline/group/flight_recorder.hpp>
#include <hookline/group/nan_checks.hpp>
#include <hookline/store/prefix_store.hpp>

namespace hookline::group {

std::shared_ptr<ProcessGroup> with_debug_wrappers(std::shared_ptr<ProcessGroup> group, const std::string& list,
                                                  const std::shared_ptr<Store>& store) {
  std::istringstream names(list);
  for (std::string name; std::getline(names, name, ',');) {
    name.erase(0, name.find_first_not_of(' '));
    name.erase(name.find_last_not_of(' ') + 1);
    if (name.empty()) continue;
    if (name == "collectives")
      group = with_collective_checks(std::move(group), std::make_shared<PrefixStore>("collectives", store));
    else if (name == "flight_recorder") group = with_flight_recorder(std::move(group));
    else if (name == "nan") group = with_nan_checks(std::move(group));
    else
      throw InvalidArgument(
          fmt::format("HOOKLINE_DEBUG={}: unknown name '{}'; expected collectives, flight_recorder, nan", list, name));
  }
  return group;
}

}  // namespace hookline::group
