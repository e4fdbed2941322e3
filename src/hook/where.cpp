// per_parameter: splits each bucket between two hooks by a parameter filter.
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <mutex>

#include <hookline/core/error.hpp>
#include <hookline/hook/wrappers.hpp>

#include "hook/around_hook.hpp"

namespace hookline {
namespace {

class WhereHook final : public hook::AroundHook {
 public:
  WhereHook(HookPtr inner, ParameterRule rule, HookPtr otherwise)
      : AroundHook(std::move(inner), "where"), rule_(std::move(rule)), otherwise_(std::move(otherwise)) {}

  void begin_step(const HookStep& step) override {
    AroundHook::begin_step(step);
    otherwise_->begin_step(step);
  }
  void end_step(const HookStep& step) override {
    AroundHook::end_step(step);
    otherwise_->end_step(step);
  }
  void give_up(const std::string& cause) override {
    AroundHook::give_up(cause);
    otherwise_->give_up(cause);
  }
  bool keep_error() override {
    (void)AroundHook::keep_error();
    if (!otherwise_->keep_error()) otherwise_ = error_feedback(otherwise_);
    return true;
  }
  std::vector<HookCost> costs() const override {
    std::vector<HookCost> all = AroundHook::costs();
    for (const HookCost& cost : otherwise_->costs()) all.push_back(cost);
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bucket < b.bucket; });
    return all;
  }
  void save(StateWriter& to) const override {
    AroundHook::save(to);
    otherwise_->save(to);
  }
  void load(StateReader& from) override {
    AroundHook::load(from);
    otherwise_->load(from);
  }

 private:
  // A subset of a bucket's parameters: their positions, and the layout of the bucket that they form.
  struct Part {
    std::vector<std::size_t> members;
    std::shared_ptr<const BucketLayout> layout;
  };
  struct Split {
    std::shared_ptr<const BucketLayout> of;
    Part chosen, rest;
  };

  Future<Tensor> run(GradBucket& bucket) override {
    const Split split = split_of(bucket);
    if (split.rest.members.empty()) co_return co_await run_and_parse(inner(), bucket);
    if (split.chosen.members.empty()) co_return co_await run_and_parse(otherwise_, bucket);
    const std::vector<Tensor> gradients = bucket.gradients();
    GradBucket chosen = collect(bucket, split.chosen, gradients);
    GradBucket rest = collect(bucket, split.rest, gradients);
    const Tensor first = co_await run_and_parse(inner(), chosen);
    spread(first, split.chosen, gradients);
    const Tensor second = co_await run_and_parse(otherwise_, rest);
    spread(second, split.rest, gradients);
    co_return bucket.buffer();
  }

  Split split_of(const GradBucket& bucket) {
    const std::lock_guard lock(mutex_);
    Split& split = splits_[bucket.index()];
    if (split.of == bucket.layout()) return split;
    split = {.of = bucket.layout(), .chosen = {}, .rest = {}};
    for (std::size_t i = 0; i < bucket.sizes().size(); ++i) {
      const std::string name = i < bucket.names().size() ? bucket.names()[i] : "";
      (rule_.fits(name, bucket.sizes()[i]) ? split.chosen : split.rest).members.push_back(i);
    }
    for (Part* part : {&split.chosen, &split.rest}) {
      std::vector<Dims> sizes;
      std::vector<Tensor> parameters;
      std::vector<std::string> names;
      for (const std::size_t i : part->members) {
        sizes.push_back(bucket.sizes()[i]);
        if (i < bucket.parameters().size()) parameters.push_back(bucket.parameters()[i]);
        if (i < bucket.names().size()) names.push_back(bucket.names()[i]);
      }
      part->layout =
          std::make_shared<const BucketLayout>(layout_of(std::move(sizes), std::move(parameters), std::move(names)));
    }
    return split;
  }

  static GradBucket collect(const GradBucket& bucket, const Part& part, const std::vector<Tensor>& gradients) {
    const auto elements = static_cast<std::int64_t>(part.layout->offsets.back() + part.layout->lengths.back());
    GradBucket result(bucket.index(), bucket.bucket_count(), Tensor::empty({elements}, bucket.buffer().dtype()),
                      part.layout);
    const std::vector<Tensor> places = result.gradients();
    for (std::size_t i = 0; i < places.size(); ++i) places[i].copy_from(gradients[part.members[i]]);
    return result;
  }

  static void spread(const Tensor& result, const Part& part, const std::vector<Tensor>& gradients) {
    for (std::size_t i = 0; i < part.members.size(); ++i) {
      const auto begin = static_cast<std::int64_t>(part.layout->offsets[i]);
      const Tensor& to = gradients[part.members[i]];
      to.copy_from(result.slice(0, begin, begin + to.numel()).reshape(to.shape()));
    }
  }

  const ParameterRule rule_;
  HookPtr otherwise_;
  std::mutex mutex_;
  std::map<std::size_t, Split> splits_;
};

}  // namespace

bool ParameterRule::fits(std::string_view parameter, const Dims& shape) const {
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) size *= extent;
  return size >= min_size && size <= max_size && (dims < 0 || static_cast<std::size_t>(dims) == shape.size()) &&
         fnmatch(name.c_str(), std::string(parameter).c_str(), 0) == 0;
}

HookPtr where(HookPtr inner, ParameterRule rule, HookPtr otherwise) {
  if (!otherwise) throw InvalidArgument("per_parameter: fallback hook must not be null");
  return std::make_shared<WhereHook>(std::move(inner), std::move(rule), std::move(otherwise));
}

}  // namespace hookline
