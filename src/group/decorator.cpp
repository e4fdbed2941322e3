// Forwarding to the inner group, where there is more to it than a line.
#include <hookline/group/decorator.hpp>

#include <utility>

#include <hookline/core/error.hpp>

namespace hookline {

GroupDecorator::GroupDecorator(std::shared_ptr<ProcessGroup> inner) : inner_(std::move(inner)) {
  if (!inner_) throw InvalidArgument("a group was to be made around no group");
}

GroupDecorator::~GroupDecorator() = default;

std::shared_ptr<ProcessGroup> GroupDecorator::new_group(const std::vector<int>& ranks) {
  auto group = inner_->new_group(ranks);
  return group ? decorate(std::move(group), ranks) : nullptr;
}

std::shared_ptr<ProcessGroup> GroupDecorator::decorate(std::shared_ptr<ProcessGroup> group, const std::vector<int>&) {
  return group;
}

}  // namespace hookline
