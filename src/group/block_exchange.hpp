// BlockExchange: allgather and alltoall of equal blocks of bytes, with fallbacks for groups that lack an operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <hookline/group/process_group.hpp>

namespace hookline::group {

/// An exchange in flight. A user's group may support only allreduce. Then each rank contributes its blocks to a sum in
/// which all other ranks have zeros: the same bytes, without saving bandwidth.
class BlockExchange {
 public:
  /// Allgather: sends this rank's block to all ranks.
  static BlockExchange allgather(ProcessGroup& group, const Tensor& send_buffer, std::optional<Milliseconds> timeout);
  /// Alltoall: `send_buffer` has one block per receiving rank.
  static BlockExchange alltoall(ProcessGroup& group, const Tensor& send_buffer, std::optional<Milliseconds> timeout);

  const WorkPtr& work() const noexcept { return work_; }
  /// Bytes that this rank sends with the operation in use.
  std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }
  std::size_t block_bytes() const noexcept { return block_bytes_; }
  /// Returns the received block of each rank. Call after the work is done; valid while this object lives.
  std::vector<const std::byte*> blocks() const;

 private:
  Tensor recv_buffer_;
  WorkPtr work_;
  std::size_t ranks_ = 0;
  std::size_t block_bytes_ = 0;
  std::size_t offset_ = 0;  ///< byte offset of rank 0's block
  std::size_t stride_ = 0;  ///< bytes from one rank's block to the next
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace hookline::group
