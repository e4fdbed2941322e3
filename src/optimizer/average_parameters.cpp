// average_parameters: small tensors are packed into flat buffers, large ones are reduced in place.
#include <deque>
#include <map>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/optimizer/model_averager.hpp>

#include "core/read_only.hpp"

namespace hookline {
namespace {

/// The maximum size of packed buffers. Larger tensors use a separate operation, which is faster than packing.
constexpr std::size_t kMaxPackedBytes = std::size_t{1} << 20;
constexpr std::size_t kInFlight = 2;

class ParameterAverager {
 public:
  explicit ParameterAverager(ProcessGroup& group) : group_(group) {}

  void add(const Tensor& tensor) {
    if (tensor.numel() == 0) return;
    if (tensor.nbytes() >= kMaxPackedBytes) {
      const Tensor flat = tensor.contiguous();
      start(flat, tensor.is_contiguous() ? std::vector<Tensor>() : std::vector{tensor});
      return;
    }
    PackedTensors& packed = packed_[tensor.dtype()];
    if (packed.bytes + tensor.nbytes() > kMaxPackedBytes) flush(tensor.dtype(), packed);
    packed.tensors.push_back(tensor);
    packed.bytes += tensor.nbytes();
  }

  void finish() {
    for (auto& [dtype, packed] : packed_) flush(dtype, packed);
    while (!in_flight_.empty()) wait_for_oldest();
  }

 private:
  struct PackedTensors {
    std::vector<Tensor> tensors;
    std::size_t bytes = 0;
  };
  struct PendingAllreduce {
    WorkPtr work;
    Tensor flat;
    std::vector<Tensor> tensors;  ///< packed in `flat` in this order
  };

  void flush(DType dtype, PackedTensors& packed) {
    if (packed.tensors.empty()) return;
    const Tensor flat = group_.empty({static_cast<std::int64_t>(packed.bytes / size_of(dtype))}, dtype);
    std::int64_t offset = 0;
    for (const Tensor& t : packed.tensors) {
      flat.slice(0, offset, offset + t.numel()).reshape(t.shape()).copy_from(t);
      offset += t.numel();
    }
    start(flat, std::move(packed.tensors));
    packed = {};
  }

  void start(const Tensor& flat, std::vector<Tensor> tensors) {
    while (in_flight_.size() >= kInFlight) wait_for_oldest();
    in_flight_.push_back({group_.allreduce(flat, {.op = ReduceOp::avg}), flat, std::move(tensors)});
  }

  void wait_for_oldest() {
    const PendingAllreduce oldest = std::move(in_flight_.front());
    in_flight_.pop_front();
    oldest.work->wait();
    const Tensor flat = oldest.flat.flatten();
    std::int64_t offset = 0;
    for (const Tensor& t : oldest.tensors) {
      t.copy_from(flat.slice(0, offset, offset + t.numel()).reshape(t.shape()));
      offset += t.numel();
    }
  }

  ProcessGroup& group_;
  std::map<DType, PackedTensors> packed_;
  std::deque<PendingAllreduce> in_flight_;
};

}  // namespace

void average_parameters(ProcessGroup& group, const std::vector<Tensor>& parameters) {
  for (const Tensor& t : parameters) {
    if (t.read_only()) {
      throw InvalidArgument(
          fmt::format("average_parameters: {} cannot be written to; {}", to_string(t), core::kPassWritableCopy));
    }
    check(ReduceOp::avg, t.dtype());
  }
  ParameterAverager averager(group);
  for (const Tensor& t : parameters) averager.add(t);
  averager.finish();
}

}  // namespace hookline
