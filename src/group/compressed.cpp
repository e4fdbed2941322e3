// CompressedReduction: allgather of all values for two ranks, reduce-scatter and allgather of slices for more.
#include <hookline/group/compressed.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/group/arguments.hpp>
#include <hookline/kernel/norm.hpp>

#include "core/stopwatch.hpp"
#include "group/block_exchange.hpp"
#include "group/float32.hpp"
#include "group/overlap.hpp"
#include "kernel/reduce.hpp"
#include "kernel/scale.hpp"

namespace hookline {
namespace {

// Values per message, rounded up to whole codec blocks. Decoded values stay in cache until all ranks' are summed.
constexpr std::size_t kMessageValues = 32768;

void check_codec(const CodecPtr& codec) {
  if (!codec) throw InvalidArgument("compressed reduction: codec must not be null");
}

std::span<float> values_of(const Tensor& tensor) {
  return {tensor.data<float>(), static_cast<std::size_t>(tensor.numel())};
}

void add(std::span<float> to, const float* from) {
  kernel::add(DType::f32, reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<const std::byte*>(from), to.size());
}

void scale(const float* from, double factor, std::span<float> to, kernel::Stores stores = kernel::Stores::automatic) {
  if (factor == 1 && from == to.data()) return;
  kernel::scale(DType::f32, reinterpret_cast<const std::byte*>(from), reinterpret_cast<std::byte*>(to.data()),
                to.size(), factor, stores);
}

// Selects streaming stores for results that exceed the caches.
kernel::Stores stores_for(std::span<const float> all) {
  return all.size_bytes() >= kernel::kStreamFrom ? kernel::Stores::streaming : kernel::Stores::cached;
}

// The slice of `count` values owned by a rank.
struct Slice {
  Slice(std::size_t count, std::size_t ranks, std::size_t rank) {
    const std::size_t each = (count + ranks - 1) / ranks;
    begin = std::min(rank * each, count);
    size = std::min(each, count - begin);
  }
  std::size_t begin;
  std::size_t size;
};

void check_op(ReduceOp op) {
  if (op.kind() != ReduceOp::Kind::sum && op.kind() != ReduceOp::Kind::avg && op.kind() != ReduceOp::Kind::premul_sum) {
    throw InvalidArgument(
        fmt::format("compressed reduction: expected the op sum, avg or premul_sum, got {}", name(op)));
  }
}

}  // namespace

/// Decodes the ranks' blocks, timed, and keeps an exception for the caller of the operation.
class CompressedReduction::Reading final : public BlockReader {
 public:
  using Body = std::function<void(std::span<const std::byte* const>)>;
  Reading(double& seconds, Body body) : seconds_(seconds), body_(std::move(body)) {}

  void read(std::span<const std::byte* const> blocks, std::size_t) noexcept override {
    const core::Stopwatch watch(seconds_);
    try {
      body_(blocks);
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  /// Rethrows the exception of read(). Call after the operation.
  void check() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  double& seconds_;
  const Body body_;
  std::exception_ptr error_;
};

CompressedReduction::CompressedReduction(std::shared_ptr<ProcessGroup> group, CodecPtr codec,
                                         CompressionOptions options)
    : group_(std::move(group)), codec_(std::move(codec)), options_(options) {
  if (!group_) throw InvalidArgument("compressed reduction: group must not be null");
  check_codec(codec_);
}

CompressedReduction::~CompressedReduction() = default;

std::size_t CompressedReduction::message_values(std::size_t count) const {
  const std::size_t block = codec_->block();
  if (block == 0) return std::max<std::size_t>(count, 1);
  return (kMessageValues + block - 1) / block * block;
}

std::size_t CompressedReduction::encoded_bytes(std::size_t count) const {
  const std::size_t each = message_values(count);
  const std::size_t rest = count % each;
  return count / each * codec_->encoded_bytes(each) + (rest ? codec_->encoded_bytes(rest) : 0);
}

// Calls `f(first, count, position, bytes)` for each message. `first` and `count` are values, `position` and `bytes` are
// its place in the encoded buffer.
template <class F>
void CompressedReduction::for_each_message(std::size_t count, F&& f) const {
  const std::size_t each = message_values(count);
  std::size_t at = 0;
  for (std::size_t first = 0; first < count; first += each) {
    const std::size_t part = std::min(each, count - first);
    const std::size_t bytes = codec_->encoded_bytes(part);
    f(first, part, at, bytes);
    at += bytes;
  }
}

void CompressedReduction::reserve(Tensor& buffer, std::size_t bytes) const {
  const auto extent = static_cast<std::int64_t>(bytes);
  if (buffer.dtype() != DType::u8 || buffer.numel() != extent) buffer = group_->empty({extent}, DType::u8);
}

void CompressedReduction::begin(const Tensor& values) {
  ++step_;
  stats_ = {.values = static_cast<std::uint64_t>(values.numel())};
  if (!options_.error_feedback) return;
  if (kept_.numel() == 0) kept_ = Tensor::zeros(values.shape());
  if (kept_.numel() != values.numel()) {
    throw InvalidArgument(fmt::format("compressed reduction with error feedback on rank {} of {}: expected {} values "
                                      "as in earlier calls, got {}",
                                      group_->rank(), size(), kept_.numel(), values.numel()));
  }
}

// `offset` is the position of the first value in the reduced tensor.
void CompressedReduction::encode(std::span<const float> values, std::size_t first, std::byte* to) {
  const core::Stopwatch watch(stats_.encode_time);
  for_each_message(values.size(), [&](std::size_t begin, std::size_t count, std::size_t at, std::size_t bytes) {
    const RoundingKey key{.seed = options_.seed,
                          .step = step_,
                          .bucket = options_.bucket,
                          .rank = static_cast<std::uint64_t>(group_->rank()),
                          .first = first + begin};
    const std::span<const float> part = values.subspan(begin, count);
    if (!options_.error_feedback) {
      codec_->encode(part, {to + at, bytes}, key);
      return;
    }
    const std::span<float> kept = values_of(kept_).subspan(first + begin, count);
    codec_->encode_with_error(part, kept, {to + at, bytes}, key);
  });
}

WorkPtr CompressedReduction::start(OpType type, const Tensor& give, Reading& reading, const AllreduceOptions& options) {
  const auto bytes = static_cast<std::uint64_t>(give.numel());
  const bool to_all = type == OpType::allgather_into_tensor;
  if (!group_->capabilities().readers) {
    received_ =
        std::make_unique<group::BlockExchange>(to_all ? group::BlockExchange::gather(*group_, give, options.timeout)
                                                      : group::BlockExchange::scatter(*group_, give, options.timeout));
    stats_.sent_bytes += received_->sent_bytes();
    return received_->work();
  }
  stats_.sent_bytes += to_all ? bytes * (size() - 1) : bytes / size() * (size() - 1);
  Collective collective;
  collective.inputs.push_back(give);
  collective.timeout = options.timeout;
  collective.type = type;
  collective.reader = &reading;
  return group_->run(std::move(collective));
}

void CompressedReduction::finish(Reading& reading) {
  if (received_) {
    const std::vector<const std::byte*> blocks = received_->blocks();
    reading.read(blocks, received_->block_bytes());
    received_.reset();
  }
  reading.check();
}

Future<Tensor> CompressedReduction::allreduce(Tensor tensor, AllreduceOptions options) {
  check_op(options.op);
  const Tensor values = group::as_float32(tensor);
  begin(values);
  if (options.op.kind() == ReduceOp::Kind::premul_sum) {
    scale(values_of(values).data(), options.op.factor(), values_of(values));
  }
  const double factor = options.op == ReduceOp::avg ? 1.0 / group_->size() : 1.0;
  if (group_->capabilities().levels) {
    co_await by_levels(values, factor, options);
  } else {
    co_await without_levels(values, factor, options);
    note_ratio(2);
  }
  group::from_float32(values, tensor);
  co_return tensor;
}

// `passes` is 2 for an allreduce, in which each value crosses the network twice, and 1 for a reduce-scatter.
void CompressedReduction::note_ratio(double times) {
  const double plain = times * static_cast<double>(size() - 1) / static_cast<double>(size()) * 4.0;
  if (stats_.sent_bytes > 0) {
    stats_.ratio = plain * static_cast<double>(stats_.values) / static_cast<double>(stats_.sent_bytes);
  }
}

Future<void> CompressedReduction::without_levels(const Tensor& tensor, double factor, const AllreduceOptions& options) {
  return size() <= 2 ? exchange(tensor, factor, options) : by_slices(tensor, factor, options);
}

Future<void> CompressedReduction::exchange(Tensor tensor, double factor, AllreduceOptions options) {
  const std::span<float> values = values_of(tensor);
  reserve(sent_, encoded_bytes(values.size()));
  encode(values, 0, sent_.mutable_bytes());
  Reading reading(stats_.decode_time,
                  [&](std::span<const std::byte* const> blocks) { add_two(blocks, factor, values); });
  const WorkPtr work = start(OpType::allgather_into_tensor, sent_, reading, options);
  co_await work;
  finish(reading);
}

// Sums the blocks of one or two ranks. Large results are computed in cache, one message at a time, and streamed out.
void CompressedReduction::add_two(std::span<const std::byte* const> blocks, double factor, std::span<float> out) const {
  const bool aside = out.size() > message_values(out.size()) && stores_for(out) == kernel::Stores::streaming;
  std::vector<float> sum(aside ? message_values(out.size()) : 0);
  for_each_message(out.size(), [&](std::size_t first, std::size_t count, std::size_t at, std::size_t bytes) {
    const std::span<float> place = out.subspan(first, count);
    const std::span<float> part = aside ? std::span(sum).first(count) : place;
    const std::span<const std::byte> message(blocks[0] + at, bytes);
    if (blocks.size() == 1) codec_->decode(message, part);
    else codec_->decode_two(message, {blocks[1] + at, bytes}, static_cast<float>(factor), part);
    if (aside) scale(part.data(), 1, place, kernel::Stores::streaming);
  });
}

// Sums the ranks' values in rank order. This rank's values are read from `own`, not from its block.
void CompressedReduction::add_up(std::span<const std::byte* const> blocks, const float* own, double factor,
                                 std::span<float> out) const {
  const auto me = static_cast<std::size_t>(group_->rank());
  std::vector<float> sum(std::min(out.size(), message_values(out.size())));
  for_each_message(out.size(), [&](std::size_t first, std::size_t count, std::size_t at, std::size_t bytes) {
    const std::span<float> part = std::span(sum).first(count);
    for (std::size_t r = 0; r < blocks.size(); ++r) {
      const std::span<const std::byte> message(blocks[r] + at, bytes);
      if (r == me && r == 0) std::copy_n(own + first, count, part.begin());
      else if (r == me) add(part, own + first);
      else if (r == 0) codec_->decode(message, part);
      else codec_->decode_add(message, part);
    }
    scale(part.data(), factor, out.subspan(first, count), stores_for(out));
  });
}

// Encodes the slices owned by other ranks, one block per owner.
void CompressedReduction::encode_slices(std::span<const float> values) {
  const auto me = static_cast<std::size_t>(group_->rank());
  const std::size_t stride = encoded_bytes(Slice(values.size(), size(), 0).size);
  reserve(sent_, stride * size());
  for (std::size_t r = 0; r < size(); ++r) {
    const Slice slice(values.size(), size(), r);
    if (r != me) encode(values.subspan(slice.begin, slice.size), slice.begin, sent_.mutable_bytes() + r * stride);
  }
}

Future<void> CompressedReduction::by_slices(Tensor tensor, double factor, AllreduceOptions options) {
  const std::span<float> values = values_of(tensor);
  const Slice mine(values.size(), size(), static_cast<std::size_t>(group_->rank()));
  const std::span<float> own = values.subspan(mine.begin, mine.size);
  encode_slices(values);
  Reading adding(stats_.decode_time,
                 [&](std::span<const std::byte* const> blocks) { add_up(blocks, own.data(), factor, own); });
  const WorkPtr added = start(OpType::reduce_scatter_tensor, sent_, adding, options);
  co_await added;
  finish(adding);

  reserve(result_, encoded_bytes(Slice(values.size(), size(), 0).size));
  encode(own, mine.begin, result_.mutable_bytes());
  Reading decoding(stats_.decode_time, [&](std::span<const std::byte* const> blocks) {
    for (std::size_t r = 0; r < blocks.size(); ++r) {
      const Slice slice(values.size(), size(), r);
      for_each_message(slice.size, [&](std::size_t first, std::size_t count, std::size_t at, std::size_t bytes) {
        codec_->decode({blocks[r] + at, bytes}, values.subspan(slice.begin + first, count));
      });
    }
  });
  const WorkPtr spread = start(OpType::allgather_into_tensor, result_, decoding, options);
  co_await spread;
  finish(decoding);
}

Future<Tensor> CompressedReduction::reduce_scatter(Tensor output, Tensor input, ReduceScatterOptions options) {
  check_op(options.op);
  if (input.numel() != output.numel() * group_->size()) {
    throw InvalidArgument(
        fmt::format("reduce_scatter on rank {} of {}: expected an input with {} times the elements of the output {}, "
                    "got {}",
                    group_->rank(), group_->size(), group_->size(), to_string(output), to_string(input)));
  }
  if (group::overlap(input, output) && !group::is_slice(output, input, group_->rank(), group_->size())) {
    throw InvalidArgument(fmt::format(
        "reduce_scatter on rank {} of {}: the output {} overlaps the input {}: expected separate memory, or "
        "slice {} of the input as the output. Pass a copy",
        group_->rank(), group_->size(), to_string(output), to_string(input), group_->rank()));
  }
  Tensor values = group::as_float32(input);
  begin(values);
  if (options.op.kind() == ReduceOp::Kind::premul_sum) {
    if (values.bytes() == input.bytes()) values = values.clone();
    scale(values_of(values).data(), options.op.factor(), values_of(values));
  }
  const double factor = options.op == ReduceOp::avg ? 1.0 / group_->size() : 1.0;
  const Tensor sum = group::as_float32(output);
  const auto mine = static_cast<std::size_t>(output.numel()) * static_cast<std::size_t>(group_->rank());
  const std::span<const float> given(values.data<const float>(), static_cast<std::size_t>(values.numel()));
  encode_slices(given);
  Reading adding(stats_.decode_time, [&](std::span<const std::byte* const> blocks) {
    add_up(blocks, given.data() + mine, factor, values_of(sum));
  });
  const WorkPtr work = start(OpType::reduce_scatter_tensor, sent_, adding, options);
  co_await work;
  finish(adding);
  note_ratio(1);
  group::from_float32(sum, output);
  co_return output;
}

void CompressedReduction::set_kept_error(const Tensor& error) {
  if (error.dtype() != DType::f32 || !error.is_contiguous()) {
    throw InvalidArgument("set_residual: expected a contiguous float32 tensor, got " + to_string(error));
  }
  kept_ = error.flatten();
}

double CompressedReduction::kept_error_norm() const { return std::sqrt(squared_norm(kept_).item<double>()); }

namespace {

Future<std::vector<Tensor>> reduce_once(std::shared_ptr<ProcessGroup> group, Tensor tensor, CodecPtr codec,
                                        AllreduceOptions options) {
  CompressedReduction reduction(std::move(group), std::move(codec));
  std::vector<Tensor> result;
  result.push_back(co_await reduction.allreduce(tensor, options));
  co_return result;
}

}  // namespace

WorkPtr ProcessGroup::allreduce(const Tensor& tensor, CodecPtr codec, const AllreduceOptions& options) {
  check_op(options.op);
  check(ReduceOp::premul_sum(1), tensor.dtype());
  check_codec(codec);
  Collective plain;
  plain.type = OpType::allreduce;
  plain.outputs.push_back(tensor);
  check_arguments(plain, rank(), size());
  const std::uint64_t number = sequence_number() + 1;
  auto reduced = reduce_once(shared_from_this(), tensor, std::move(codec), options);
  WorkPtr work = make_work(std::move(reduced), OpType::allreduce, number);
  coalesce(work);
  return work;
}

}  // namespace hookline
