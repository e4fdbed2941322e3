// Compressed reductions: ranks exchange values encoded by a codec.
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
  bool error_feedback = false;  ///< add the encoding error of each call to the values of the next call
  std::uint64_t seed = 0;       ///< `seed` and `bucket` seed stochastic rounding
  std::uint64_t bucket = 0;
};

/// Statistics of this rank's last reduction.
struct CompressionStats {
  std::uint64_t values = 0;
  std::uint64_t bytes_sent = 0;
  double ratio = 1;        ///< bytes of an uncompressed reduction divided by bytes_sent
  double encode_time = 0;  ///< seconds
  double decode_time = 0;
};

/// Reduces tensors of one size, call after call. Keeps buffers in the group's memory, the residual of error feedback
/// and the step number between calls. One call at a time.
///
/// Algorithm: reduce-scatter and allgather of encoded slices. Each rank owns a slice, sums all ranks' decoded values of
/// it in float32 in rank order, encodes the result once, and all ranks decode that. Every rank gets the same bits. Each
/// of N ranks sends 2 (N - 1) / N times the encoded size. Two ranks allgather all their values instead, which sends the
/// same number of bytes and rounds once. Other floating-point dtypes are cast to float32 and back. A group that
/// supports only allreduce, or allgather of lists, gives the same bits but saves less or nothing.
///
/// On a hierarchical group an allreduce first sums inside each host without encoding. Then the owners of each slice run
/// the algorithm above between the hosts.
class HOOKLINE_EXPORT CompressedReduction {
 public:
  /// Throws InvalidArgument if the group or the codec is null.
  CompressedReduction(std::shared_ptr<ProcessGroup> group, CodecPtr codec, CompressionOptions options = {});
  CompressedReduction(const CompressedReduction&) = delete;
  CompressedReduction& operator=(const CompressedReduction&) = delete;
  ~CompressedReduction();

  /// Reduces in place. This object and the tensor must outlive the Future. Throws InvalidArgument unless the op is sum,
  /// avg or premul_sum and the tensor is floating point; with error feedback its size must match the first call's.
  [[nodiscard]] Future<Tensor> allreduce(Tensor tensor, AllreduceOptions options = {});
  /// Each rank gets its slice of the reduced input. The other ranks' values are rounded once; this rank's own values
  /// are not rounded. The output may be this rank's slice of the input; other overlaps throw InvalidArgument.
  [[nodiscard]] Future<Tensor> reduce_scatter(Tensor output, Tensor input, ReduceScatterOptions options = {});

  const CompressionStats& stats() const noexcept { return stats_; }

  // State to save and restore for a bitwise identical resume.
  std::uint64_t step() const noexcept { return step_; }
  void set_step(std::uint64_t step) noexcept { step_ = step; }
  /// Returns the residual of error feedback, one float32 per value; empty before the first call and without feedback.
  const Tensor& residual() const noexcept { return residual_; }
  void set_residual(const Tensor& residual);
  double residual_norm() const;

 private:
  class BlockDecoder;
  class InterHostStage;

  std::size_t size() const { return static_cast<std::size_t>(group_->size()); }
  std::size_t values_per_message(std::size_t count) const;
  std::size_t encoded_bytes(std::size_t count) const;
  template <class F>
  void for_each_message(std::size_t count, F&& f) const;
  void reserve(Tensor& buffer, std::size_t bytes) const;
  void begin_step(const Tensor& values);
  void encode(std::span<const float> values, std::size_t offset, std::byte* encoded);
  void encode_slices(std::span<const float> values);
  void sum_blocks(std::span<const std::byte* const> blocks, const float* own, double factor,
                  std::span<float> out) const;
  void sum_two(std::span<const std::byte* const> blocks, double factor, std::span<float> out) const;
  WorkPtr start_exchange(OpType type, const Tensor& send_buffer, BlockDecoder& decoder,
                         const AllreduceOptions& options);
  void finish_exchange(BlockDecoder& decoder);
  Future<void> allgather_and_sum(Tensor tensor, double factor, AllreduceOptions options);
  Future<void> reduce_scatter_allgather(Tensor tensor, double factor, AllreduceOptions options);
  Future<void> flat(const Tensor& tensor, double factor, const AllreduceOptions& options);
  Future<void> hierarchical(Tensor tensor, double factor, AllreduceOptions options);
  void update_ratio(double passes);

  const std::shared_ptr<ProcessGroup> group_;
  const CodecPtr codec_;
  const CompressionOptions options_;
  CompressionStats stats_;
  std::uint64_t step_ = 0;
  Tensor residual_;
  Tensor send_buffer_;                                         ///< encoded values, in the group's memory
  Tensor encoded_result_;                                      ///< this rank's slice of the result, encoded
  std::unique_ptr<group::BlockExchange> block_exchange_;       ///< in flight; null on groups with zero_copy_reads
  std::unique_ptr<CompressedReduction> inter_host_reduction_;  ///< of this rank's slice, among its owners on all hosts
};

}  // namespace hookline
