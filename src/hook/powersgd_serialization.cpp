// PowerSGDMemory: serialization.
#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>

#include "hook/powersgd_memory.hpp"

namespace hookline::hook {
namespace {

template <class T>
void check_option(const char* option, const T& saved, const T& here) {
  if (saved != here) {
    throw InvalidArgument(fmt::format("load_state: PowerSGD: {} differs: expected {}, got {}", option, here, saved));
  }
}

}  // namespace

void PowerSGDMemory::save(StateWriter& writer) const {
  const std::lock_guard lock(mutex_);
  writer.integer(options_.matrix_approximation_rank);
  writer.integer(options_.random_seed);
  writer.boolean(options_.use_error_feedback);
  writer.boolean(options_.warm_start);
  // A step whose last bucket was withheld by a wrapper counts as complete.
  writer.integer(iter_ + (last_bucket_index_ ? 1 : 0));
  writer.integer(numel_before_);
  writer.integer(numel_after_);
  writer.integer(next_report_);
  writer.boolean(shapes_complete_);
  writer.integer(shapes_.size());
  for (const auto& [name, shape] : shapes_) {
    writer.text(name);
    writer.integer(shape.size());
    for (const std::int64_t extent : shape) writer.integer(extent);
  }
  Unassigned all = unassigned_;
  export_state(all, std::nullopt);
  save_tensors(writer, all.residuals);
  save_tensors(writer, all.q);
}

void PowerSGDMemory::load(StateReader& reader) {
  const std::lock_guard lock(mutex_);
  check_option("matrix_approximation_rank", reader.integer<std::int64_t>(), options_.matrix_approximation_rank);
  check_option("random_seed", reader.integer(), options_.random_seed);
  check_option("use_error_feedback", reader.boolean(), options_.use_error_feedback);
  check_option("warm_start", reader.boolean(), options_.warm_start);
  const std::uint64_t iter = reader.integer();
  const std::uint64_t before = reader.integer();
  const std::uint64_t after = reader.integer();
  const std::uint64_t next_report = reader.integer();
  const bool shapes_complete = reader.boolean();
  std::map<std::string, Dims> shapes;
  for (std::uint64_t left = reader.integer(); left > 0; --left) {
    const std::string name = reader.text();
    Dims shape;
    for (std::uint64_t extents = reader.integer(); extents > 0; --extents) {
      shape.push_back(reader.integer<std::int64_t>());
    }
    shapes.emplace(name, shape);
  }
  Unassigned unassigned{load_tensors(reader), load_tensors(reader)};
  buckets_.clear();
  seen_names_.clear();
  last_bucket_index_.reset();
  iter_ = iter;
  numel_before_ = before;
  numel_after_ = after;
  next_report_ = next_report;
  shapes_ = std::move(shapes);
  shapes_complete_ = shapes_complete;
  unassigned_ = std::move(unassigned);
}

}  // namespace hookline::hook
