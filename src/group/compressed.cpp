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
#include "group/tensor_aliasing.hpp"
#include "kernel/reduce.hpp"
#include "kernel/scale.hpp"

namespace hookline {
namespace {

// Values per message, rounded up to whole codec blocks. Decoded values stay in cache until the sum is complete.
constexpr std::size_t kValuesPerMessage = 32768;

void check_codec(const CodecPtr& codec) {
  if (!codec) throw InvalidArgument("compressed reduction: codec must not be null");
}

std::span<float> values_of(const Tensor& tensor) {
  return {tensor.data<float>(), static_cast<std::size_t>(tensor.numel())};
}

void add(std::span<float> to, const float* from) {
  kernel::add(DType::f32, reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<const std::byte*>(from), to.size());
}

void scale(const float* from, double factor, std::span<float> to,
           kernel::StoreMode stores = kernel::StoreMode::automatic) {
  if (factor == 1 && from == to.data()) return;
  kernel::scale(DType::f32, reinterpret_cast<const std::byte*>(from), reinterpret_cast<std::byte*>(to.data()),
                to.size(), factor, stores);
}

// Selects streaming stores for results that exceed the caches.
kernel::StoreMode stores_for(std::span<const float> all) {
  return all.size_bytes() >= kernel::kStreamThresholdBytes ? kernel::StoreMode::streaming : kernel::StoreMode::cached;
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
class CompressedReduction::BlockDecoder final : public BlockReader {
 public:
  using DecodeFunction = std::function<void(std::span<const std::byte* const>)>;
  BlockDecoder(double& decode_seconds, DecodeFunction decode)
      : decode_seconds_(decode_seconds), decode_(std::move(decode)) {}

  void read(std::span<const std::byte* const> blocks, std::size_t) noexcept override {
    const core::Stopwatch watch(decode_seconds_);
    try {
      decode_(blocks);
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  /// Rethrows the exception of read(). Call after the operation.
  void rethrow_error() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  double& decode_seconds_;
  const DecodeFunction decode_;
  std::exception_ptr error_;
};

CompressedReduction::CompressedReduction(std::shared_ptr<ProcessGroup> group, CodecPtr codec,
                                         CompressionOptions options)
    : group_(std::move(group)), codec_(std::move(codec)), options_(options) {
  if (!group_) throw InvalidArgument("compressed reduction: group must not be null");
  check_codec(codec_);
}

CompressedReduction::~CompressedReduction() = default;

std::size_t CompressedReduction::values_per_message(std::size_t count) const {
  const std::size_t block = codec_->block();
  if (block == 0) return std::max<std::size_t>(count, 1);
  return (kValuesPerMessage + block - 1) / block * block;
}

std::size_t CompressedReduction::encoded_bytes(std::size_t count) const {
  const std::size_t each = values_per_message(count);
  const std::size_t rest = count % each;
  return count / each * codec_->encoded_bytes(each) + (rest ? codec_->encoded_bytes(rest) : 0);
}

// Calls `f(first, count, position, bytes)` for each message: the index of its first value, its number of values, and
// its offset and size in the encoded buffer.
template <class F>
void CompressedReduction::for_each_message(std::size_t count, F&& f) const {
  const std::size_t each = values_per_message(count);
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

void CompressedReduction::begin_step(const Tensor& values) {
  ++step_;
  stats_ = {.values = static_cast<std::uint64_t>(values.numel())};
  if (!options_.error_feedback) return;
  if (residual_.numel() == 0) residual_ = Tensor::zeros(values.shape());
  if (residual_.numel() != values.numel()) {
    throw InvalidArgument(
        fmt::format("compressed reduction with error feedback on rank {} of {}: expected {} values "
                    "as in earlier calls, got {}",
                    group_->rank(), size(), residual_.numel(), values.numel()));
  }
}

// `offset` is the position of the first value in the reduced tensor.
void CompressedReduction::encode(std::span<const float> values, std::size_t offset, std::byte* encoded) {
  const core::Stopwatch watch(stats_.encode_time);
  for_each_message(values.size(), [&](std::size_t begin, std::size_t count, std::size_t at, std::size_t bytes) {
    const RoundingKey key{.seed = options_.seed,
                          .step = step_,
                          .bucket = options_.bucket,
                          .rank = static_cast<std::uint64_t>(group_->rank()),
                          .first_index = offset + begin};
    const std::span<const float> part = values.subspan(begin, count);
    if (!options_.error_feedback) {
      codec_->encode(part, {encoded + at, bytes}, key);
      return;
    }
    const std::span<float> residual = values_of(residual_).subspan(offset + begin, count);
    codec_->encode_with_residual(part, residual, {encoded + at, bytes}, key);
  });
}

WorkPtr CompressedReduction::start_exchange(OpType type, const Tensor& send_buffer, BlockDecoder& decoder,
                                            const AllreduceOptions& options) {
  const auto bytes = static_cast<std::uint64_t>(send_buffer.numel());
  const bool to_all = type == OpType::allgather_into_tensor;
  if (!group_->capabilities().zero_copy_reads) {
    block_exchange_ = std::make_unique<group::BlockExchange>(
        to_all ? group::BlockExchange::allgather(*group_, send_buffer, options.timeout)
               : group::BlockExchange::alltoall(*group_, send_buffer, options.timeout));
    stats_.bytes_sent += block_exchange_->bytes_sent();
    return block_exchange_->work();
  }
  stats_.bytes_sent += to_all ? bytes * (size() - 1) : bytes / size() * (size() - 1);
  Operation operation;
  operation.inputs.push_back(send_buffer);
  operation.timeout = options.timeout;
  operation.type = type;
  operation.reader = &decoder;
  return group_->run(std::move(operation));
}

void CompressedReduction::finish_exchange(BlockDecoder& decoder) {
  if (block_exchange_) {
    const std::vector<const std::byte*> blocks = block_exchange_->blocks();
    decoder.read(blocks, block_exchange_->block_bytes());
    block_exchange_.reset();
  }
  decoder.rethrow_error();
}

Future<Tensor> CompressedReduction::allreduce(Tensor tensor, AllreduceOptions options) {
  check_op(options.op);
  const Tensor values = group::as_float32(tensor);
  begin_step(values);
  if (options.op.kind() == ReduceOp::Kind::premul_sum) {
    scale(values_of(values).data(), options.op.factor(), values_of(values));
  }
  const double factor = options.op == ReduceOp::avg ? 1.0 / group_->size() : 1.0;
  if (group_->capabilities().hierarchical) {
    co_await hierarchical(values, factor, options);
  } else {
    co_await flat(values, factor, options);
    update_ratio(2);
  }
  group::from_float32(values, tensor);
  co_return tensor;
}

// `passes` is 2 for an allreduce, in which each value crosses the network twice, and 1 for a reduce-scatter.
void CompressedReduction::update_ratio(double passes) {
  const double plain = passes * static_cast<double>(size() - 1) / static_cast<double>(size()) * 4.0;
  if (stats_.bytes_sent > 0) {
    stats_.ratio = plain * static_cast<double>(stats_.values) / static_cast<double>(stats_.bytes_sent);
  }
}

Future<void> CompressedReduction::flat(const Tensor& tensor, double factor, const AllreduceOptions& options) {
  return size() <= 2 ? allgather_and_sum(tensor, factor, options) : reduce_scatter_allgather(tensor, factor, options);
}

Future<void> CompressedReduction::allgather_and_sum(Tensor tensor, double factor, AllreduceOptions options) {
  const std::span<float> values = values_of(tensor);
  reserve(send_buffer_, encoded_bytes(values.size()));
  encode(values, 0, send_buffer_.mutable_bytes());
  BlockDecoder decoder(stats_.decode_time,
                       [&](std::span<const std::byte* const> blocks) { sum_two(blocks, factor, values); });
  const WorkPtr work = start_exchange(OpType::allgather_into_tensor, send_buffer_, decoder, options);
  co_await work;
  finish_exchange(decoder);
}

// Sums the blocks of one or two ranks. Large results are computed in cache, one message at a time, and streamed out.
void CompressedReduction::sum_two(std::span<const std::byte* const> blocks, double factor, std::span<float> out) const {
  const bool staged = out.size() > values_per_message(out.size()) && stores_for(out) == kernel::StoreMode::streaming;
  std::vector<float> sum(staged ? values_per_message(out.size()) : 0);
  for_each_message(out.size(), [&](std::size_t first, std::size_t count, std::size_t at, std::size_t bytes) {
    const std::span<float> destination = out.subspan(first, count);
    const std::span<float> part = staged ? std::span(sum).first(count) : destination;
    const std::span<const std::byte> message(blocks[0] + at, bytes);
    if (blocks.size() == 1) codec_->decode(message, part);
    else codec_->decode_sum_two(message, {blocks[1] + at, bytes}, static_cast<float>(factor), part);
    if (staged) scale(part.data(), 1, destination, kernel::StoreMode::streaming);
  });
}

// Sums the ranks' values in rank order. This rank's values are read from `own`, not from its block.
void CompressedReduction::sum_blocks(std::span<const std::byte* const> blocks, const float* own, double factor,
                                     std::span<float> out) const {
  const auto me = static_cast<std::size_t>(group_->rank());
  std::vector<float> sum(std::min(out.size(), values_per_message(out.size())));
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
  reserve(send_buffer_, stride * size());
  for (std::size_t r = 0; r < size(); ++r) {
    const Slice slice(values.size(), size(), r);
    if (r != me)
      encode(values.subspan(slice.begin, slice.size), slice.begin, send_buffer_.mutable_bytes() + r * stride);
  }
}

Future<void> CompressedReduction::reduce_scatter_allgather(Tensor tensor, double factor, AllreduceOptions options) {
  const std::span<float> values = values_of(tensor);
  const Slice mine(values.size(), size(), static_cast<std::size_t>(group_->rank()));
  const std::span<float> own = values.subspan(mine.begin, mine.size);
  encode_slices(values);
  BlockDecoder sum_decoder(stats_.decode_time, [&](std::span<const std::byte* const> blocks) {
    sum_blocks(blocks, own.data(), factor, own);
  });
  const WorkPtr reduce_scatter_work = start_exchange(OpType::reduce_scatter_tensor, send_buffer_, sum_decoder, options);
  co_await reduce_scatter_work;
  finish_exchange(sum_decoder);

  reserve(encoded_result_, encoded_bytes(Slice(values.size(), size(), 0).size));
  encode(own, mine.begin, encoded_result_.mutable_bytes());
  BlockDecoder result_decoder(stats_.decode_time, [&](std::span<const std::byte* const> blocks) {
    for (std::size_t r = 0; r < blocks.size(); ++r) {
      const Slice slice(values.size(), size(), r);
      for_each_message(slice.size, [&](std::size_t first, std::size_t count, std::size_t at, std::size_t bytes) {
        codec_->decode({blocks[r] + at, bytes}, values.subspan(slice.begin + first, count));
      });
    }
  });
  const WorkPtr allgather_work =
      start_exchange(OpType::allgather_into_tensor, encoded_result_, result_decoder, options);
  co_await allgather_work;
  finish_exchange(result_decoder);
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
        "slice {} of the input as the output. Pass a copy.",
        group_->rank(), group_->size(), to_string(output), to_string(input), group_->rank()));
  }
  Tensor values = group::as_float32(input);
  begin_step(values);
  if (options.op.kind() == ReduceOp::Kind::premul_sum) {
    if (values.bytes() == input.bytes()) values = values.clone();
    scale(values_of(values).data(), options.op.factor(), values_of(values));
  }
  const double factor = options.op == ReduceOp::avg ? 1.0 / group_->size() : 1.0;
  const Tensor sum = group::as_float32(output);
  const auto own_offset = static_cast<std::size_t>(output.numel()) * static_cast<std::size_t>(group_->rank());
  const std::span<const float> input_values(values.data<const float>(), static_cast<std::size_t>(values.numel()));
  encode_slices(input_values);
  BlockDecoder decoder(stats_.decode_time, [&](std::span<const std::byte* const> blocks) {
    sum_blocks(blocks, input_values.data() + own_offset, factor, values_of(sum));
  });
  const WorkPtr work = start_exchange(OpType::reduce_scatter_tensor, send_buffer_, decoder, options);
  co_await work;
  finish_exchange(decoder);
  update_ratio(1);
  group::from_float32(sum, output);
  co_return output;
}

void CompressedReduction::set_residual(const Tensor& residual) {
  if (residual.dtype() != DType::f32 || !residual.is_contiguous()) {
    throw InvalidArgument("set_residual: expected a contiguous float32 tensor, got " + to_string(residual));
  }
  residual_ = residual.flatten();
}

double CompressedReduction::residual_norm() const { return std::sqrt(squared_norm(residual_).item<double>()); }

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
  Operation plain;
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
