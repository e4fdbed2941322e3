// PowerSGDMemory: serialization.
#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>

#include "hook/powersgd_memory.hpp"

namespace hookline::hook {
namespace {

template <class T>
void expect(const char* option, const T& saved, const T& here) {
  if (saved != here) {
    throw InvalidArgument(fmt::format("load_state: PowerSGD: {} differs: expected {}, got {}", option, here, saved));
  }
}

}  // namespace

void PowerSGDMemory::save(StateWriter& to) const {
  const std::lock_guard lock(mutex_);
  to.number(static_cast<std::uint64_t>(options_.matrix_approximation_rank));
  to.number(options_.random_seed);
  to.number(options_.use_error_feedback ? 1 : 0);
  to.number(options_.warm_start ? 1 : 0);
  // A step whose last bucket was withheld by a wrapper counts as complete.
  to.number(iter_ + (last_index_ ? 1 : 0));
  to.number(before_);
  to.number(after_);
  to.number(next_report_);
  to.number(shapes_are_all_ ? 1 : 0);
  to.number(shapes_.size());
  for (const auto& [name, shape] : shapes_) {
    to.text(name);
    to.number(shape.size());
    for (const std::int64_t extent : shape) to.number(static_cast<std::uint64_t>(extent));
  }
  Loose all = loose_;
  take_apart(all, std::nullopt);
  save_tensors(to, all.errors);
  save_tensors(to, all.q);
}

void PowerSGDMemory::load(StateReader& from) {
  const std::lock_guard lock(mutex_);
  expect("matrix_approximation_rank", from.number(), static_cast<std::uint64_t>(options_.matrix_approximation_rank));
  expect("random_seed", from.number(), options_.random_seed);
  expect("use_error_feedback", from.number() != 0, options_.use_error_feedback);
  expect("warm_start", from.number() != 0, options_.warm_start);
  const std::uint64_t iter = from.number();
  const std::uint64_t before = from.number();
  const std::uint64_t after = from.number();
  const std::uint64_t next_report = from.number();
  const bool all = from.number() != 0;
  std::map<std::string, Dims> shapes;
  for (std::uint64_t left = from.number(); left > 0; --left) {
    const std::string name = from.text();
    Dims shape;
    for (std::uint64_t extents = from.number(); extents > 0; --extents) {
      shape.push_back(static_cast<std::int64_t>(from.number()));
    }
    shapes.emplace(name, shape);
  }
  Loose loose{load_tensors(from), load_tensors(from)};
  buckets_.clear();
  seen_.clear();
  last_index_.reset();
  iter_ = iter;
  before_ = before;
  after_ = after;
  next_report_ = next_report;
  shapes_ = std::move(shapes);
  shapes_are_all_ = all;
  loose_ = std::move(loose);
}

}  // namespace hookline::hook
