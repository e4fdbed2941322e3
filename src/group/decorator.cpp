// GroupDecorator: subgroups of wrapped groups.
#include <hookline/group/decorator.hpp>

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

namespace hookline {

GroupDecorator::GroupDecorator(std::shared_ptr<ProcessGroup> inner) : inner_(std::move(inner)) {
  if (!inner_) throw InvalidArgument("cannot wrap a group: inner group must not be null");
}

std::shared_ptr<ProcessGroup> GroupDecorator::new_group(const std::vector<int>& ranks) {
  const std::uint64_t number = ++num_subgroups_;
  auto group = inner_->new_group(ranks);
  if (!group) return nullptr;
  // The label may become part of a file name, repeatedly for nested subgroups.
  constexpr std::size_t kMaxListedRanks = 8;
  const std::span<const int> listed = std::span(ranks).first(std::min(ranks.size(), kMaxListedRanks));
  const std::string suffix =
      ranks.size() > kMaxListedRanks ? fmt::format("_and_{}_more", ranks.size() - kMaxListedRanks) : "";
  return decorate(std::move(group), fmt::format("group{}of{}{}", number, fmt::join(listed, "_"), suffix));
}

// Forwards instead of using the base class: the inner group may have its own split().
std::shared_ptr<ProcessGroup> GroupDecorator::split(int color, int key) {
  const std::uint64_t number = ++num_subgroups_;
  auto group = inner_->split(color, key);
  return group ? decorate(std::move(group), fmt::format("group{}of_color{}", number, color)) : nullptr;
}

std::shared_ptr<ProcessGroup> GroupDecorator::decorate(std::shared_ptr<ProcessGroup> group, const std::string&) {
  return group;
}

}  // namespace hookline
