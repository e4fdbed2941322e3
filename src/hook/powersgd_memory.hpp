// All buckets of PowerSGD's, found again by the parameters' names when they are cut anew, and as bytes.
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

/// Buckets are launched by several threads; everything here is guarded by one lock but what a bucket's own step does.
class PowerSGDMemory {
 public:
  explicit PowerSGDMemory(const PowerSGDOptions& options);

  PowerSGDOptions options() const;
  /// Errors stay, and factors where their rank does.
  void set_options(const PowerSGDOptions& options);

  /// A step of a reducer. Between the two its buckets come in any order.
  void begin_step();
  void end_step();
  /// The number of the step that a bucket belongs to, where it is to be compressed. Outside of the steps of a reducer
  /// they are counted by the buckets.
  std::optional<std::uint64_t> begin(const GradBucket& bucket);
  std::uint64_t iter() const;
  PowerSGDState::Totals totals() const;
  void set_report(PowerSGDState::Report report);
  std::uint64_t next_report() const;
  /// Calls it where it is due.
  void report(std::uint64_t step);

  /// What is kept of a bucket. InvalidArgument naming the first parameter that differs from those known.
  std::shared_ptr<PowerSGDBucket> of(const GradBucket& bucket, std::uint64_t step, bool batched, ProcessGroup& group);

  std::vector<HookCost> costs() const;
  std::map<std::size_t, PowerSGDState::Kept> kept() const;

  void save(StateWriter& to) const;
  void load(StateReader& from);

 private:
  /// What is known of parameters and squares whose buckets are not there.
  struct Loose {
    NamedTensors errors;
    NamedTensors q;  ///< columns x rank
  };

  void learn(const GradBucket& bucket);
  /// Buckets that this step has begun with are left out: their hooks may be running.
  void take_apart(Loose& loose, std::optional<std::uint64_t> but_of_step) const;
  void put_together(PowerSGDBucket& kept, const GradBucket& bucket);
  void forget_buckets(std::optional<std::uint64_t> but_of_step);

  mutable std::mutex mutex_;
  PowerSGDOptions options_;
  bool batched_ = false;
  std::uint64_t iter_ = 0;
  std::optional<std::uint64_t> step_;      ///< that a reducer has begun
  std::optional<std::size_t> last_index_;  ///< of this step, where no reducer has begun one
  std::map<std::size_t, std::shared_ptr<PowerSGDBucket>> buckets_;
  Loose loose_;
  std::map<std::string, Dims> shapes_;  ///< of all parameters of the model, as far as they were seen
  bool shapes_are_all_ = false;
  std::set<std::string> seen_;  ///< since the buckets were cut
  std::uint64_t before_ = 0;
  std::uint64_t after_ = 0;
  PowerSGDState::Report report_;
  std::uint64_t next_report_ = 0;
};

}  // namespace hookline::hook
