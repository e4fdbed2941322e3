// A collective over a transport: header exchange, agreement, and data transfer.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/block_layout.hpp"
#include "backend/p2p/lane.hpp"
#include "backend/p2p/transport_op.hpp"
#include "backend/step_coroutine.hpp"

namespace hookline::p2p {

using backend::Pattern;
using backend::StepCoroutine;

/// Every rank first sends a header to every other rank: its OpSignature; for alltoall the bytes to and from each rank;
/// then its blocks, if they are small. All ranks compare the same headers and therefore select the same algorithm.
/// Invariant: before the ranks agree, no tensor is written and only headers are received.
class CollectiveOp final : public TransportOp, public LaneTask {
 public:
  CollectiveOp(std::shared_ptr<P2PContext> context, Milliseconds timeout, int lane, Operation&& arguments);

  /// Posts the headers. Call first, in lane order. `sequence` counts the operations of the lane from 1.
  void post_headers(std::uint64_t sequence);
  /// True if the lane's thread should drive the operation at once instead of leaving it to a waiting caller.
  bool is_large() const noexcept { return !inlines_payload_; }

  bool step() override;
  void finish(std::exception_ptr error) override;
  Clock::time_point task_deadline() const override { return deadline(); }
  std::exception_ptr timeout_error() override;
  bool is_missing(int rank) override;
  std::string description() const override { return describe(); }
  std::string describe() const override;

  backend::FrameStorage& frame_storage() noexcept { return frame_storage_[frames_used_++ % frame_storage_.size()]; }

 private:
  using Block = backend::Segment;  ///< a contiguous block

  void drive() override;
  void expedite() override;
  void release_requests() noexcept;

  StepCoroutine run();
  StepCoroutine pairwise_exchange();
  StepCoroutine scatter_allgather_broadcast();
  StepCoroutine direct_reduce();

  const std::byte* header(int rank) const;
  const std::byte* payload(int rank) const;
  void compare_headers();
  void compare_splits();
  bool all_inlined() const;
  void consume_inline_payload();
  void copy_local_block();

  bool is_source(int rank) const { return backend::is_source(layout_.pattern, rank, operation().root); }
  bool receives_result() const { return layout_.pattern != Pattern::reduce || rank_ == operation().root; }
  std::size_t source_bytes(int source) const;
  std::size_t block_offset(int source, int target) const;
  std::size_t splits_bytes() const;

  /// Returns a contiguous block for a list of segments: their own memory, or a buffer, packed now if `pack` and
  /// unpacked at the end if `unpack`.
  Block contiguous_block(const backend::SegmentList& segments, bool pack, bool unpack);
  void unpack_blocks();

  MessageTag data_tag(std::uint64_t chunk, int phase) const;
  std::unique_ptr<Request> send(int destination, std::uint64_t chunk, int phase, Block block);
  std::unique_ptr<Request> receive(int source, std::uint64_t chunk, int phase, Block block);
  std::size_t request_index(std::uint64_t chunk, int rank) const;

  const int lane_;
  const int rank_;
  const int size_;
  backend::BlockLayout layout_;
  backend::OpSignature signature_;
  std::uint64_t sequence_ = 0;
  std::size_t header_stride_ = 0;  ///< bytes of a header with its inline payload
  std::size_t inline_limit_ = 0;
  bool inlines_payload_ = false;   ///< this rank's blocks travel with its header
  bool headers_received_ = false;  ///< the headers of all ranks have arrived
  bool headers_sent_ = false;      ///< this rank's header has been sent to all ranks
  std::exception_ptr post_error_;
  Tensor headers_;                     ///< by rank, including this one
  std::vector<std::uint64_t> splits_;  ///< for alltoall: bytes from each rank (row) to each rank (column)
  struct PackedBlock {
    const backend::SegmentList* segments;
    Tensor memory;
    bool unpack;
  };
  std::vector<PackedBlock> packed_;
  Tensor scratch_;
  // Requests come last: they are destroyed before the memory that they access.
  std::vector<std::unique_ptr<Request>> sends_;
  std::vector<std::unique_ptr<Request>> receives_;
  std::vector<std::unique_ptr<Request>> result_sends_;
  std::vector<std::unique_ptr<Request>> result_receives_;

  std::array<backend::FrameStorage, 2> frame_storage_;
  std::size_t frames_used_ = 0;
  bool started_ = false;
  StepCoroutine coroutine_;
};

}  // namespace hookline::p2p
