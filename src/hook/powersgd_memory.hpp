// PowerSGDMemory: the state of all buckets, its serialization, and its transfer by parameter name on rebucketing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <hookline/hook/powersgd.hpp>

#include "hook/named_tensors.hpp"
#include "hook/powersgd_bucket.hpp"

namespace hookline::hook {

/// Thread-safe: one mutex guards all members. The computations of a bucket run without it.
class PowerSGDMemory {
 public:
  explicit PowerSGDMemory(const PowerSGDOptions& options);

  PowerSGDOptions options() const;
  /// Keeps the residuals, and the factors if the rank is unchanged.
  void set_options(const PowerSGDOptions& options);

  /// Delimit a reducer's step. Between the two calls its buckets run in any order.
  void begin_step();
  void end_step();
  /// Returns the step of a bucket, or nullopt before compression starts. Outside a reducer, bucket indices delimit the
  /// steps.
  std::optional<std::uint64_t> begin_bucket(const GradBucket& bucket);
  std::uint64_t iter() const;
  PowerSGDState::Totals totals() const;
  void set_report(PowerSGDState::Report report);
  std::uint64_t next_report() const;
  /// Runs the report callback if it is due.
  void report(std::uint64_t step);

  /// Returns the state of a bucket, created if needed. Throws InvalidArgument naming the first parameter that differs
  /// from the known ones.
  std::shared_ptr<PowerSGDBucket> bucket_state(const GradBucket& bucket, std::uint64_t step, bool batched,
                                               ProcessGroup& group);

  std::vector<HookStats> stats() const;
  std::map<std::size_t, PowerSGDState::BucketState> bucket_states() const;

  void save(StateWriter& writer) const;
  void load(StateReader& reader);

 private:
  /// State of parameters and square matrices that belong to no current bucket.
  struct Unassigned {
    TensorsByName residuals;
    TensorsByName q;  ///< columns x rank
  };

  void register_parameters(const GradBucket& bucket);
  /// Skips buckets of `except_step`: their hooks may be running.
  void export_state(Unassigned& unassigned, std::optional<std::uint64_t> except_step) const;
  void restore(PowerSGDBucket& bucket_state, const GradBucket& bucket);
  void drop_buckets(std::optional<std::uint64_t> except_step);

  mutable std::mutex mutex_;
  PowerSGDOptions options_;
  bool batched_ = false;
  std::uint64_t iter_ = 0;
  std::optional<std::uint64_t> step_;             ///< the reducer's current step; empty outside a reducer
  std::optional<std::size_t> last_bucket_index_;  ///< last bucket of the current step outside a reducer
  std::map<std::size_t, std::shared_ptr<PowerSGDBucket>> buckets_;
  Unassigned unassigned_;
  std::map<std::string, Dims> shapes_;  ///< shapes of the model's parameters seen so far
  bool shapes_complete_ = false;
  std::set<std::string> seen_names_;  ///< parameters seen since the last rebucketing
  std::uint64_t numel_before_ = 0;
  std::uint64_t numel_after_ = 0;
  PowerSGDState::Report report_;
  std::uint64_t next_report_ = 0;
};

}  // namespace hookline::hook
