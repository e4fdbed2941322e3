// per_parameter: splits each bucket between two hooks by a parameter filter.
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <mutex>

#include <hookline/core/error.hpp>
#include <hookline/hook/wrappers.hpp>

#include "hook/hook_wrapper.hpp"

namespace hookline {
namespace {

class PerParameterHook final : public hook::HookWrapper {
 public:
  PerParameterHook(HookPtr inner, ParameterFilter filter, HookPtr fallback)
      : HookWrapper(std::move(inner), "where"), filter_(std::move(filter)), fallback_(std::move(fallback)) {}

  void begin_step(const HookStep& step) override {
    HookWrapper::begin_step(step);
    fallback_->begin_step(step);
  }
  void end_step(const HookStep& step) override {
    HookWrapper::end_step(step);
    fallback_->end_step(step);
  }
  void on_step_failed(const std::string& cause) override {
    HookWrapper::on_step_failed(cause);
    fallback_->on_step_failed(cause);
  }
  bool enable_error_feedback() override {
    (void)HookWrapper::enable_error_feedback();
    if (!fallback_->enable_error_feedback()) fallback_ = with_error_feedback(fallback_);
    return true;
  }
  std::vector<HookStats> stats() const override {
    std::vector<HookStats> all = HookWrapper::stats();
    for (const HookStats& stats : fallback_->stats()) all.push_back(stats);
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bucket < b.bucket; });
    return all;
  }
  void save(StateWriter& writer) const override {
    HookWrapper::save(writer);
    fallback_->save(writer);
  }
  void load(StateReader& reader) override {
    HookWrapper::load(reader);
    fallback_->load(reader);
  }

 private:
  // A subset of a bucket's parameters: their positions, and the layout of the bucket that they form.
  struct Subset {
    std::vector<std::size_t> members;
    std::shared_ptr<const BucketLayout> layout;
  };
  struct Split {
    std::shared_ptr<const BucketLayout> layout;
    Subset matched, unmatched;
  };

  Future<Tensor> run(GradBucket& bucket) override {
    const Split split = split_of(bucket);
    if (split.unmatched.members.empty()) co_return co_await run_and_parse(inner(), bucket);
    if (split.matched.members.empty()) co_return co_await run_and_parse(fallback_, bucket);
    const std::vector<Tensor> gradients = bucket.gradients();
    GradBucket matched = gather_subset(bucket, split.matched, gradients);
    GradBucket unmatched = gather_subset(bucket, split.unmatched, gradients);
    const Tensor first = co_await run_and_parse(inner(), matched);
    scatter_subset(first, split.matched, gradients);
    const Tensor second = co_await run_and_parse(fallback_, unmatched);
    scatter_subset(second, split.unmatched, gradients);
    co_return bucket.buffer();
  }

  Split split_of(const GradBucket& bucket) {
    const std::lock_guard lock(mutex_);
    Split& split = splits_[bucket.index()];
    if (split.layout == bucket.layout()) return split;
    split = {.layout = bucket.layout(), .matched = {}, .unmatched = {}};
    for (std::size_t i = 0; i < bucket.sizes().size(); ++i) {
      const std::string name = i < bucket.names().size() ? bucket.names()[i] : "";
      (filter_.matches(name, bucket.sizes()[i]) ? split.matched : split.unmatched).members.push_back(i);
    }
    for (Subset* subset : {&split.matched, &split.unmatched}) {
      std::vector<Dims> sizes;
      std::vector<Tensor> parameters;
      std::vector<std::string> names;
      for (const std::size_t i : subset->members) {
        sizes.push_back(bucket.sizes()[i]);
        if (i < bucket.parameters().size()) parameters.push_back(bucket.parameters()[i]);
        if (i < bucket.names().size()) names.push_back(bucket.names()[i]);
      }
      subset->layout =
          std::make_shared<const BucketLayout>(layout_of(std::move(sizes), std::move(parameters), std::move(names)));
    }
    return split;
  }

  static GradBucket gather_subset(const GradBucket& bucket, const Subset& subset,
                                  const std::vector<Tensor>& gradients) {
    const auto elements = static_cast<std::int64_t>(subset.layout->offsets.back() + subset.layout->lengths.back());
    GradBucket result(bucket.index(), bucket.bucket_count(), Tensor::empty({elements}, bucket.buffer().dtype()),
                      subset.layout);
    const std::vector<Tensor> places = result.gradients();
    for (std::size_t i = 0; i < places.size(); ++i) places[i].copy_from(gradients[subset.members[i]]);
    return result;
  }

  static void scatter_subset(const Tensor& result, const Subset& subset, const std::vector<Tensor>& gradients) {
    for (std::size_t i = 0; i < subset.members.size(); ++i) {
      const auto begin = static_cast<std::int64_t>(subset.layout->offsets[i]);
      const Tensor& to = gradients[subset.members[i]];
      to.copy_from(result.slice(0, begin, begin + to.numel()).reshape(to.shape()));
    }
  }

  const ParameterFilter filter_;
  HookPtr fallback_;
  std::mutex mutex_;
  std::map<std::size_t, Split> splits_;
};

}  // namespace

bool ParameterFilter::matches(std::string_view parameter, const Dims& shape) const {
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) size *= extent;
  return size >= min_size && size <= max_size && (dims < 0 || static_cast<std::size_t>(dims) == shape.size()) &&
         fnmatch(name.c_str(), std::string(parameter).c_str(), 0) == 0;
}

HookPtr per_parameter(HookPtr inner, ParameterFilter filter, HookPtr fallback) {
  if (!fallback) throw InvalidArgument("per_parameter: fallback hook must not be null");
  return std::make_shared<PerParameterHook>(std::move(inner), std::move(filter), std::move(fallback));
}

}  // namespace hookline
