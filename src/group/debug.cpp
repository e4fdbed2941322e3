// Debug wrappers selected by HOOKLINE_DEBUG.
#include "group/debug.hpp"

#include <sstream>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/group/checked.hpp>
#include <hookline/group/nan_checked.hpp>
#include <hookline/group/recorded.hpp>
#include <hookline/store/prefix_store.hpp>

namespace hookline::group {

std::shared_ptr<ProcessGroup> decorated(std::shared_ptr<ProcessGroup> group, const std::string& list,
                                        const std::shared_ptr<Store>& store) {
  std::istringstream names(list);
  for (std::string name; std::getline(names, name, ',');) {
    name.erase(0, name.find_first_not_of(' '));
    name.erase(name.find_last_not_of(' ') + 1);
    if (name.empty()) continue;
    if (name == "checked") group = checked(std::move(group), std::make_shared<PrefixStore>("checked", store));
    else if (name == "recorded") group = recorded(std::move(group));
    else if (name == "nan_checked") group = nan_checked(std::move(group));
    else
      throw InvalidArgument(
          fmt::format("HOOKLINE_DEBUG={}: unknown name '{}'; expected collectives, flight_recorder, nan", list, name));
  }
  return group;
}

}  // namespace hookline::group
