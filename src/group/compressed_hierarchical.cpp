// Hierarchical compressed allreduce: plain sums inside each host, compressed reduction of each slice between hosts.
#include <utility>

#include <fmt/format.h>

#include <hookline/core/call_context.hpp>
#include <hookline/group/compressed.hpp>

namespace hookline {

/// Runs the compressed reduction between hosts on the thread that drives the operation. It may block.
class CompressedReduction::InterHostStage final : public InterHostReducer {
 public:
  InterHostStage(CompressedReduction& outer, double factor)
      : outer_(outer), factor_(factor), context_(current_context()) {}

  std::string name() const override { return fmt::format("{}, times {}", outer_.codec_->name(), factor_); }

  void reduce(const std::shared_ptr<Backend>& inter_host, const Tensor& slice, std::size_t first, int lane,
              Milliseconds timeout) override {
    CompressedReduction& reduction = inter_host_reduction(inter_host, first, timeout);
    reduction.step_ = outer_.step_ - 1;
    const auto begin = static_cast<std::int64_t>(first);
    if (outer_.options_.error_feedback)
      reduction.residual_ = outer_.residual_.flatten().slice(0, begin, begin + slice.numel());
    reduction.begin_step(slice);
    CallContext context = context_;
    context.lane = lane;
    const ContextScope scope(std::move(context));
    const AllreduceOptions options{.timeout = timeout};
    // The operations inside enforce the timeout; this wait must not end before theirs.
    reduction.flat(slice, factor_, options).wait(kMaxTimeout);
    reduction.update_ratio(2);
    const std::uint64_t values = outer_.stats_.values;
    outer_.stats_ = reduction.stats_;
    outer_.stats_.values = values;
  }

 private:
  // The owners of a slice never change, so the reduction is created once. Each slice gets its own random seed.
  CompressedReduction& inter_host_reduction(const std::shared_ptr<Backend>& inter_host, std::size_t first,
                                            Milliseconds timeout) {
    if (!outer_.inter_host_reduction_) {
      CompressionOptions options = outer_.options_;
      options.seed += 0x9e3779b97f4a7c15U * first;
      outer_.inter_host_reduction_ =
          std::make_unique<CompressedReduction>(make_group(inter_host, timeout), outer_.codec_, options);
    }
    return *outer_.inter_host_reduction_;
  }

  CompressedReduction& outer_;
  const double factor_;
  const CallContext context_;
};

Future<void> CompressedReduction::hierarchical(Tensor tensor, double factor, AllreduceOptions options) {
  InterHostStage inter_host_stage(*this, factor);
  Operation operation;
  operation.type = OpType::allreduce;
  operation.outputs.push_back(tensor);
  operation.timeout = options.timeout;
  operation.inter_host_reducer = &inter_host_stage;
  const WorkPtr work = group_->run(std::move(operation));
  co_await work;
}

}  // namespace hookline
