// Hierarchical compressed allreduce: plain sums inside each host, compressed reduction of each slice between hosts.
#include <utility>

#include <fmt/format.h>

#include <hookline/core/call_context.hpp>
#include <hookline/group/compressed.hpp>

namespace hookline {

/// Runs the compressed reduction between hosts on the thread that drives the operation. It may block.
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
    // The operations inside enforce the timeout; this wait must not end before theirs.
    part.without_levels(slice, factor_, options).wait(kLongestTimeout);
    part.note_ratio(2);
    const std::uint64_t values = whole_.stats_.values;
    whole_.stats_ = part.stats_;
    whole_.stats_.values = values;
  }

 private:
  // The owners of a slice never change, so the reduction is created once. Each slice gets its own random seed.
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
