// Encoding between hosts only: the ranks of a host add up first, and the owners of a slice reduce it with each other.
#include <utility>

#include <fmt/format.h>

#include <hookline/core/call_context.hpp>
#include <hookline/group/compressed.hpp>

namespace hookline {

/// Runs in the thread that runs the operation, so it may block; the reduction itself goes on elsewhere meanwhile.
class CompressedReduction::Between final : public SliceReducer {
 public:
  Between(CompressedReduction& whole, double factor) : whole_(whole), factor_(factor), context_(current_context()) {}

  std::string name() const override { return fmt::format("{}, times {}", whole_.codec_->name(), factor_); }

  void reduce(const std::shared_ptr<Backend>& counterparts, const Tensor& slice, std::size_t first, int lane,
              Milliseconds timeout) override {
    CompressedReduction& part = part_for(counterparts, first, timeout);
    part.step_ = whole_.step_ - 1;
    const auto begin = static_cast<std::int64_t>(first);
    if (whole_.options_.error_feedback) part.kept_ = whole_.kept_.flatten().slice(0, begin, begin + slice.numel());
    part.begin(slice);
    CallContext context = context_;
    context.lane = lane;
    const ContextScope scope(std::move(context));
    const AllreduceOptions options{.timeout = timeout};
    // The operations in it have the timeout; what waits for them must not go before them.
    part.without_levels(slice, factor_, options).wait(kLongestTimeout);
    part.note_ratio(2);
    const std::uint64_t values = whole_.stats_.values;
    whole_.stats_ = part.stats_;
    whole_.stats_.values = values;
  }

 private:
  // Slices of one place have the same owners every time, and draw their own random numbers.
  CompressedReduction& part_for(const std::shared_ptr<Backend>& counterparts, std::size_t first, Milliseconds timeout) {
    if (!whole_.between_) {
      CompressionOptions options = whole_.options_;
      options.seed += 0x9e3779b97f4a7c15U * first;
      whole_.between_ =
          std::make_unique<CompressedReduction>(make_group(counterparts, timeout), whole_.codec_, options);
    }
    return *whole_.between_;
  }

  CompressedReduction& whole_;
  const double factor_;
  const CallContext context_;
};

Future<void> CompressedReduction::by_levels(Tensor tensor, double factor, AllreduceOptions options) {
  Between between(*this, factor);
  Collective collective;
  collective.type = OpType::allreduce;
  collective.outputs.push_back(tensor);
  collective.timeout = options.timeout;
  collective.between = &between;
  const WorkPtr work = group_->run(std::move(collective));
  co_await work;
}

}  // namespace hookline
