// The shared-memory layout. Each rank has one block: a RankBlock, followed by the mailboxes for its receivers.
//
// Ownership: a rank writes its own block, except `futex_word` (written by any rank that notifies), `liveness_lock` and
// `found_dead` (by ranks that check whether the owner lives), and `drained` and `rejected` of a mailbox (by its
// receiver). Every counter that a peer polls only grows.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include <hookline/backend/backend.hpp>

#include "backend/op_signature.hpp"

namespace hookline::local {

using backend::kCacheLineBytes;
using backend::OpSignature;

inline constexpr int kMaxRanks = 512;
inline constexpr std::size_t kInlineBytes = 8 * 1024;           ///< payload bytes of a slot
inline constexpr std::size_t kChunkBytes = 256 * 1024;          ///< size of a staging buffer
inline constexpr std::size_t kMailboxesPerPeer = 4;             ///< unread messages per receiver
inline constexpr std::size_t kMailboxMemoryBytes = 768 * 1024;  ///< memory of all mailboxes of a rank
inline constexpr std::size_t kFailureReasonBytes = 1024;
inline constexpr std::size_t kMaxCores = 1024;

/// Returns the index of the staging buffer for a round of a lane. Two alternating buffers suffice: one is filled while
/// the other is read. The user's lane has more, so that together they exceed a core's private cache: peers then fetch
/// chunks from the shared cache, in half the time that it takes from another core's cache.
constexpr std::size_t staging_buffer_index(int lane, std::uint64_t round) noexcept {
  constexpr std::size_t kUserLaneBuffers = 4;
  if (lane == 0) return round % kUserLaneBuffers;
  return kUserLaneBuffers + 2 * static_cast<std::size_t>(lane - 1) + round % 2;
}
inline constexpr std::size_t kStagingBuffers = staging_buffer_index(kNumLanes - 1, 1) + 1;

using Counter = std::atomic<std::uint64_t>;
static_assert(Counter::is_always_lock_free);

/// Double buffer: operation n of a lane uses slot n mod 2. A rank posts n + 2 only after all ranks have posted n + 1,
/// and a rank that posted n + 1 has read all slots of n.
struct alignas(kCacheLineBytes) Slot {
  Counter sequence = 0;  ///< sequence of the operation that `signature` and `payload` belong to
  OpSignature signature;
  alignas(kCacheLineBytes) std::array<std::byte, kInlineBytes> payload;
};

/// Round counters, over all operations of the lane; see CollectiveOp.
struct LaneBlock {
  std::array<Slot, 2> slots;
  alignas(kCacheLineBytes) Counter filled = 0;
  /// True while this rank accesses the memory of peers. Dekker handshake, all seq_cst: this rank stores
  /// `accessing_peer`, then loads the peers' `state`; a peer that leaves or fails stores its `state`, then loads
  /// `accessing_peer`.
  std::atomic<bool> accessing_peer = false;
  alignas(kCacheLineBytes) Counter reduced = 0;
  alignas(kCacheLineBytes) Counter drained = 0;
};

/// A message to one receiver, in chunks that alternate between the two halves of the mailbox's memory.
struct alignas(kCacheLineBytes) Mailbox {
  Counter message_count = 0;     ///< incremented with each message; the fields below describe the last one
  std::uint64_t send_order = 0;  ///< sequence number among all messages to this receiver
  std::int32_t tag = 0;
  std::uint8_t dtype = 0;
  std::uint64_t bytes = 0;
  alignas(kCacheLineBytes) Counter filled = 0;   ///< chunks written, over all messages
  alignas(kCacheLineBytes) Counter drained = 0;  ///< chunks read by the receiver, over all messages
  Counter rejected = 0;                          ///< message_count of the last message that the receiver rejected
};

enum class RankState : std::uint32_t { joining, active, left, failed };

struct alignas(4096) RankBlock {
  /// Dekker handshake: the waiter increments `sleepers` (seq_cst), then loads the awaited state; the writer stores the
  /// state (seq_cst), then loads `sleepers` (seq_cst).
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> futex_word = 0;
  std::atomic<std::uint32_t> sleepers = 0;

  alignas(kCacheLineBytes) std::atomic<RankState> state = RankState::joining;
  std::array<std::uint64_t, kMaxCores / 64> cpu_affinity = {};  ///< usable cores; written before `state`
  std::array<char, kFailureReasonBytes> failure_reason = {};    ///< error text of this rank; written before `state`
  std::int32_t failure_origin = -1;                             ///< the rank that failed first; written before `state`
  std::atomic<bool> found_dead = false;  ///< set by a peer that found the owner of `liveness_lock` dead
  pthread_mutex_t liveness_lock;         ///< robust; held by a thread of the rank until it leaves

  std::array<LaneBlock, kNumLanes> lanes;

  alignas(
      4096) std::array<std::array<std::byte, kChunkBytes>, kStagingBuffers> staging;  ///< see staging_buffer_index()
  alignas(4096) std::array<std::byte, kMailboxMemoryBytes> mailbox_memory;
};

using ReceiverMailboxes = std::array<Mailbox, kMailboxesPerPeer>;

/// Returns the size of a rank's block: a RankBlock, and mailboxes for each rank.
constexpr std::size_t block_bytes(int ranks) noexcept {
  constexpr std::size_t kPage = alignof(RankBlock);
  const std::size_t bytes = sizeof(RankBlock) + static_cast<std::size_t>(ranks) * sizeof(ReceiverMailboxes);
  return (bytes + kPage - 1) / kPage * kPage;
}
static_assert(block_bytes(128) <= 4 * 1024 * 1024,
              "docs/reference/backend.md: at most 4 MiB of shared memory per rank");
static_assert(block_bytes(kMaxRanks) <= 4352 * 1024, "docs/reference/backend.md: at most 4.25 MiB in larger groups");
static_assert(2 * sizeof(std::uint64_t) * kMaxRanks <= kInlineBytes,
              "an alltoall posts two sizes per rank in its slot");
static_assert(kChunkBytes / kMaxRanks >= kCacheLineBytes, "a staging buffer holds a block for each rank");
static_assert(kMailboxMemoryBytes / kMaxRanks / kMailboxesPerPeer / 2 >= kCacheLineBytes,
              "each mailbox has two halves");

/// Returns the chunk size of a mailbox: half of its memory.
constexpr std::size_t mailbox_chunk_bytes(int ranks) noexcept {
  return kMailboxMemoryBytes / static_cast<std::size_t>(ranks) / kMailboxesPerPeer / 2 / kCacheLineBytes *
         kCacheLineBytes;
}

/// Returns the mailboxes in `block` for one receiver.
inline ReceiverMailboxes& receiver_mailboxes(RankBlock& block, int receiver) noexcept {
  auto* const mailboxes = reinterpret_cast<std::byte*>(&block + 1);
  return *std::launder(
      reinterpret_cast<ReceiverMailboxes*>(mailboxes + static_cast<std::size_t>(receiver) * sizeof(ReceiverMailboxes)));
}

/// Creates the block of a rank in `memory`, which has block_bytes(ranks) bytes. Leaves staging buffers and mailbox
/// memory uninitialized. Nothing in it needs a destructor call.
inline RankBlock* make_block(void* memory, int ranks) {
  auto* const block = new (memory) RankBlock;
  auto* const mailboxes = reinterpret_cast<std::byte*>(block + 1);
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
    new (mailboxes + r * sizeof(ReceiverMailboxes)) ReceiverMailboxes;
  return block;
}
static_assert(std::is_trivially_destructible_v<RankBlock> && std::is_trivially_destructible_v<ReceiverMailboxes>);

}  // namespace hookline::local
