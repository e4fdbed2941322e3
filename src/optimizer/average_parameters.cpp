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
constexpr std::size_t kLarge = std::size_t{1} << 20;
constexpr std::size_t kInFlight = 2;

class Averaging {
 public:
  explicit Averaging(ProcessGroup& group) : group_(group) {}

  void add(const Tensor& tensor) {
    if (tensor.numel() == 0) return;
    if (tensor.nbytes() >= kLarge) {
      const Tensor flat = tensor.contiguous();
      start(flat, tensor.is_contiguous() ? std::vector<Tensor>() : std::vector{tensor});
      return;
    }
    Packing& packing = packing_[tensor.dtype()];
    if (packing.bytes + tensor.nbytes() > kLarge) flush(tensor.dtype(), packing);
    packing.tensors.push_back(tensor);
    packing.bytes += tensor.nbytes();
  }

  void finish() {
    for (auto& [dtype, packing] : packing_) flush(dtype, packing);
    while (!under_way_.empty()) wait_for_oldest();
  }

 private:
  struct Packing {
    std::vector<Tensor> tensors;
    std::size_t bytes = 0;
  };
  struct Operation {
    WorkPtr work;
    Tensor flat;
    std::vector<Tensor> tensors;  ///< the consecutive contents of `flat`
  };

  void flush(DType dtype, Packing& packing) {
    if (packing.tensors.empty()) return;
    const Tensor flat = group_.empty({static_cast<std::int64_t>(packing.bytes / size_of(dtype))}, dtype);
    std::int64_t at = 0;
    for (const Tensor& t : packing.tensors) {
      flat.slice(0, at, at + t.numel()).reshape(t.shape()).copy_from(t);
      at += t.numel();
    }
    start(flat, std::move(packing.tensors));
    packing = {};
  }

  void start(const Tensor& flat, std::vector<Tensor> tensors) {
    while (under_way_.size() >= kInFlight) wait_for_oldest();
    under_way_.push_back({group_.allreduce(flat, {.op = ReduceOp::avg}), flat, std::move(tensors)});
  }

  void wait_for_oldest() {
    const Operation oldest = std::move(under_way_.front());
    under_way_.pop_front();
    oldest.work->wait();
    const Tensor flat = oldest.flat.flatten();
    std::int64_t at = 0;
    for (const Tensor& t : oldest.tensors) {
      t.copy_from(flat.slice(0, at, at + t.numel()).reshape(t.shape()));
      at += t.numel();
    }
  }

  ProcessGroup& group_;
  std::map<DType, Packing> packing_;
  std::deque<Operation> under_way_;
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
  Averaging averaging(group);
  for (const Tensor& t : parameters) averaging.add(t);
  averaging.finish();
}

}  // namespace hookline
