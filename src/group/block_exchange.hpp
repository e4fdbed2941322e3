// Equal blocks of bytes between all ranks, by whichever operation the group has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <hookline/group/process_group.hpp>

namespace hookline::group {

/// Blocks that are under way. A group written by a user may have no more than allreduce: then they go as the parts of
/// a sum to which every other rank adds zeros, which saves nothing and gives the same bytes.
class BlockExchange {
 public:
  /// One block of every rank to every rank: `give` is this rank's.
  static BlockExchange gather(ProcessGroup& group, const Tensor& give, std::optional<Milliseconds> timeout);
  /// A block of every rank for every rank: `give` has them one after another.
  static BlockExchange scatter(ProcessGroup& group, const Tensor& give, std::optional<Milliseconds> timeout);

  const WorkPtr& work() const noexcept { return work_; }
  /// What this rank sends by the operation that was found.
  std::uint64_t sent_bytes() const noexcept { return sent_bytes_; }
  std::size_t block_bytes() const noexcept { return block_bytes_; }
  /// The block of each rank, when the work is done; they live as long as this.
  std::vector<const std::byte*> blocks() const;

 private:
  Tensor received_;
  WorkPtr work_;
  std::size_t ranks_ = 0;
  std::size_t block_bytes_ = 0;
  std::size_t first_ = 0;   ///< where the block of rank 0 is
  std::size_t stride_ = 0;  ///< from it to that of the next rank
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace hookline::group
