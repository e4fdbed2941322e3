// The shared-memory layout: one block per rank, written by its owner and read by its peers. A RankBlock comes first;
// the owner's mailboxes follow, sized by the number of ranks.
//
// Who may write what: everything in a RankBlock is written by the rank that owns it, except `bell` (anybody rings),
// `alive` and `found_dead` (by who asks whether the rank lives), and `drained` and `refused` of a mailbox (written by
// the one rank that the mailbox is for). Each word that a peer waits for only grows.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include "backend/op_signature.hpp"

namespace hookline::local {

using backend::kCacheLineBytes;
using backend::OpSignature;

inline constexpr int kMaxRanks = 512;
inline constexpr int kNumLanes = 5;                             ///< lane 0 is the user's, the others belong to hooks
inline constexpr std::size_t kInlineBytes = 8 * 1024;           ///< what rides in the control line
inline constexpr std::size_t kChunkBytes = 256 * 1024;          ///< one of the staging buffers of a lane
inline constexpr std::size_t kMailboxesPerPeer = 4;             ///< messages that may lie unread for one receiver
inline constexpr std::size_t kMailboxMemoryBytes = 768 * 1024;  ///< the memory of all mailboxes of a rank together
inline constexpr std::size_t kFailureReasonBytes = 1024;
inline constexpr std::size_t kMaxCores = 1024;

/// The staging buffer for a round of a lane. Two that are used in turn are enough: one is filled while the other is
/// read. The user's lane has as many as do not fit into a core's own cache together, so that peers fetch what lies in
/// the cache that the cores share: in half the time that it takes out of another core's.
constexpr std::size_t staging_buffer_index(int lane, std::uint64_t round) noexcept {
  constexpr std::size_t kUserLaneBuffers = 4;
  if (lane == 0) return round % kUserLaneBuffers;
  return kUserLaneBuffers + 2 * static_cast<std::size_t>(lane - 1) + round % 2;
}
inline constexpr std::size_t kStagingBuffers = staging_buffer_index(kNumLanes - 1, 1) + 1;

using Counter = std::atomic<std::uint64_t>;
static_assert(Counter::is_always_lock_free);

/// Two of these a lane: number n uses slot n mod 2. A rank posts n + 2 only after it has seen everybody post n + 1, and
/// who posted n + 1 has read all of n.
struct alignas(kCacheLineBytes) Slot {
  Counter sequence = 0;  ///< of the operation that `call` and `payload` belong to
  OpSignature signature;
  alignas(kCacheLineBytes) std::array<std::byte, kInlineBytes> payload;
};

/// Counts of rounds, over all operations of the lane; see exchange.hpp.
struct LaneBlock {
  std::array<Slot, 2> slots;
  alignas(kCacheLineBytes) Counter filled = 0;
  /// While it reads or writes the memory of others. Set before the last look at their `standing`, which they change
  /// before they look at this: both in one total order, so that one of them sees the other.
  std::atomic<bool> accessing_peer = false;
  alignas(kCacheLineBytes) Counter reduced = 0;
  alignas(kCacheLineBytes) Counter drained = 0;
};

/// One message to one receiver, in chunks of alternating halves of the mailbox's memory.
struct alignas(kCacheLineBytes) Mailbox {
  Counter message_count = 0;     ///< grows by one with each message that is put in; the fields below belong to it
  std::uint64_t send_order = 0;  ///< the place of this message among all that go to this receiver
  std::int32_t tag = 0;
  std::uint8_t dtype = 0;
  std::uint64_t bytes = 0;
  alignas(kCacheLineBytes) Counter filled = 0;   ///< chunks written, over all messages
  alignas(kCacheLineBytes) Counter drained = 0;  ///< chunks read, by the receiver
  Counter rejected = 0;                          ///< the number of the last message that the receiver could not take
};

enum class RankState : std::uint32_t { joining, active, left, failed };

struct alignas(4096) RankBlock {
  /// Whoever sleeps has counted itself in `sleepers` before its last look; whoever changes something looks at
  /// `sleepers` after it, and rings. Both in one total order, so that one of them sees the other.
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> futex_word = 0;
  std::atomic<std::uint32_t> sleepers = 0;

  alignas(kCacheLineBytes) std::atomic<RankState> state = RankState::joining;
  std::array<std::uint64_t, kMaxCores / 64> cpu_affinity = {};  ///< which ones it may run on; written before `standing`
  std::array<char, kFailureReasonBytes> failure_reason = {};    ///< why this rank failed; written before `standing`
  std::int32_t failure_origin = -1;      ///< the first rank of the group that failed for this cause; as `cause`
  std::atomic<bool> found_dead = false;  ///< set by whoever of the peers found `alive` without its owner
  pthread_mutex_t liveness_lock;         ///< held for life by a thread of the rank's: robust, so that its death shows

  std::array<LaneBlock, kNumLanes> lanes;

  alignas(
      4096) std::array<std::array<std::byte, kChunkBytes>, kStagingBuffers> staging;  ///< see staging_buffer_index()
  alignas(4096) std::array<std::byte, kMailboxMemoryBytes> mailbox_memory;
};

/// The mailboxes for one receiver.
using ReceiverMailboxes = std::array<Mailbox, kMailboxesPerPeer>;

/// Bytes of a rank's block in a group of `ranks`: a RankBlock and Mailboxes for each rank.
constexpr std::size_t block_bytes(int ranks) noexcept {
  constexpr std::size_t kPage = alignof(RankBlock);
  const std::size_t bytes = sizeof(RankBlock) + static_cast<std::size_t>(ranks) * sizeof(ReceiverMailboxes);
  return (bytes + kPage - 1) / kPage * kPage;
}
static_assert(block_bytes(128) <= 4 * 1024 * 1024, "docs/backend.md: at most 4 MiB of shared memory a rank");
static_assert(block_bytes(kMaxRanks) <= 4352 * 1024, "docs/backend.md: at most 4.25 MiB in larger groups");
static_assert(2 * sizeof(std::uint64_t) * kMaxRanks <= kInlineBytes, "an alltoall posts two sizes a rank in its slot");
static_assert(kChunkBytes / kMaxRanks >= kCacheLineBytes, "a staging buffer holds a part for each rank");
static_assert(kMailboxMemoryBytes / kMaxRanks / kMailboxesPerPeer / 2 >= kCacheLineBytes, "each mailbox has two halves");

/// Bytes of half the memory of a mailbox.
constexpr std::size_t mail_half_bytes(int ranks) noexcept {
  return kMailboxMemoryBytes / static_cast<std::size_t>(ranks) / kMailboxesPerPeer / 2 / kCacheLineBytes * kCacheLineBytes;
}

/// The mailboxes of the owner of `block` for `receiver`, a rank of its group.
inline ReceiverMailboxes& receiver_mailboxes(RankBlock& block, int receiver) noexcept {
  auto* const behind = reinterpret_cast<std::byte*>(&block + 1);
  return *std::launder(reinterpret_cast<ReceiverMailboxes*>(behind + static_cast<std::size_t>(receiver) * sizeof(ReceiverMailboxes)));
}

/// Makes the block of a rank of a group of `ranks` in `memory`, which has block_bytes(ranks). Leaves the staging
/// buffers and the memory of the mailboxes as they are. Nothing in it needs to be destroyed.
inline RankBlock* make_block(void* memory, int ranks) {
  auto* const block = new (memory) RankBlock;
  auto* const behind = reinterpret_cast<std::byte*>(block + 1);
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) new (behind + r * sizeof(ReceiverMailboxes)) ReceiverMailboxes;
  return block;
}
static_assert(std::is_trivially_destructible_v<RankBlock> && std::is_trivially_destructible_v<ReceiverMailboxes>);

}  // namespace hookline::local
