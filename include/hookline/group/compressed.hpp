// Reductions of encoded values: fewer bytes between the ranks, for a rounding or two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <hookline/codec/codec.hpp>
#include <hookline/core/export.hpp>
#include <hookline/core/future.hpp>
#include <hookline/core/tensor.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {
namespace group {
class BlockExchange;
}

struct CompressionOptions {
  bool error_feedback = false;  ///< what encoding lost of a call's values is added to those of the next call
  std::uint64_t seed = 0;       ///< of stochastic rounding; so is the bucket
  std::uint64_t bucket = 0;
};

/// What the last reduction cost this rank.
struct CompressionStats {
  std::uint64_t values = 0;
  std::uint64_t sent_bytes = 0;
  double ratio = 1;        ///< the bytes that the values themselves would have taken, over sent_bytes
  double encode_time = 0;  ///< seconds
  double decode_time = 0;
};

/// Reduces tensors of one size, call after call, and keeps between the calls what is needed for the next one: buffers
/// in the group's memory, the error that encoding made, and the number of the step. One call at a time.
///
/// Each rank owns a slice of the values. It gets the others' encoded values of its slice, adds them and its own in
/// float32 in rank order, encodes the result once, and everybody decodes that: the same bits on every rank, and
/// 2 (N - 1) / N times the encoded size sent by each of N ranks. Two ranks exchange all of their values instead, which
/// is as small and rounds once. Values of other floating-point dtypes are cast to float32 and back. A group that has no
/// operation for this but allreduce, or allgather of lists, gives the same bits, and saves less or nothing.
///
/// On a group with levels (ranks that share hosts, on several hosts) an allreduce adds up inside each host without
/// encoding anything, and the owners of each slice do all that with each other: fewer bytes, fewer roundings.
class HOOKLINE_EXPORT CompressedReduction {
 public:
  /// InvalidArgument where there is no group or no codec.
  CompressedReduction(std::shared_ptr<ProcessGroup> group, CodecPtr codec, CompressionOptions options = {});
  CompressedReduction(const CompressedReduction&) = delete;
  CompressedReduction& operator=(const CompressedReduction&) = delete;
  ~CompressedReduction();

  /// In place; the object and the tensor must live until it is done. The op is sum, avg or premul_sum. InvalidArgument
  /// for others, for integers, and for values of another number than kept errors are of.
  [[nodiscard]] Future<Tensor> allreduce(Tensor tensor, AllreduceOptions options = {});
  /// Each rank gets its part of the reduced input, rounded once, and without any rounding of its own values. The output
  /// may be this rank's slice of the input; InvalidArgument for other overlaps.
  [[nodiscard]] Future<Tensor> reduce_scatter(Tensor output, Tensor input, ReduceScatterOptions options = {});

  const CompressionStats& stats() const noexcept { return stats_; }

  // What a resumed run needs to go on with the same bits.
  std::uint64_t step() const noexcept { return step_; }
  void set_step(std::uint64_t step) noexcept { step_ = step; }
  /// What was lost up to now, one float32 for each value; empty before the first call and without error feedback.
  const Tensor& kept_error() const noexcept { return kept_; }
  void set_kept_error(const Tensor& error);
  double kept_error_norm() const;

 private:
  class Reading;
  class Between;

  std::size_t size() const { return static_cast<std::size_t>(group_->size()); }
  std::size_t message_values(std::size_t count) const;
  std::size_t encoded_bytes(std::size_t count) const;
  template <class F>
  void for_each_message(std::size_t count, F&& f) const;
  void reserve(Tensor& buffer, std::size_t bytes) const;
  void begin(const Tensor& values);
  void encode(std::span<const float> values, std::size_t first, std::byte* to);
  void encode_slices(std::span<const float> values);
  void add_up(std::span<const std::byte* const> blocks, const float* own, double factor, std::span<float> out) const;
  void add_two(std::span<const std::byte* const> blocks, double factor, std::span<float> out) const;
  WorkPtr start(OpType type, const Tensor& give, Reading& reading, const AllreduceOptions& options);
  void finish(Reading& reading);
  Future<void> exchange(Tensor tensor, double factor, AllreduceOptions options);
  Future<void> by_slices(Tensor tensor, double factor, AllreduceOptions options);
  Future<void> without_levels(const Tensor& tensor, double factor, const AllreduceOptions& options);
  Future<void> by_levels(Tensor tensor, double factor, AllreduceOptions options);
  void note_ratio(double times);

  const std::shared_ptr<ProcessGroup> group_;
  const CodecPtr codec_;
  const CompressionOptions options_;
  CompressionStats stats_;
  std::uint64_t step_ = 0;
  Tensor kept_;
  Tensor sent_;                                     ///< encoded values, in the group's memory
  Tensor result_;                                   ///< this rank's slice of the result, encoded
  std::unique_ptr<group::BlockExchange> received_;  ///< of a group that cannot let its ranks' memory be read
  std::unique_ptr<CompressedReduction> between_;    ///< of this rank's slice, with its counterparts on other hosts
};

}  // namespace hookline
