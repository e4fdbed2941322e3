// The signature of a rank's call, which all ranks compare before they move data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hookline/backend/operation.hpp>

namespace hookline::backend {

inline constexpr std::size_t kCacheLineBytes = 64;

struct BlockLayout;

/// The signature of an operation: type, dtype, sizes, op and tag. Each rank posts it before it moves data; each rank
/// compares all signatures.
struct OpSignature {
  std::uint8_t type = 0;
  std::uint8_t dtype = 0;
  std::uint8_t reduce_op = 0;
  std::uint8_t inputs_shared = 0;  ///< 1 if the peers can read the inputs in shared memory, at `shared_offset`
  std::int32_t root = 0;
  std::uint64_t count = 0;        ///< elements
  std::uint64_t layout_hash = 0;  ///< hash of the tensor sizes
  double factor = 0;
  std::uint64_t shared_offset = 0;
  std::uint32_t first_page = 0;  ///< first page of the buffer that contains `shared_offset`
  std::uint32_t pages = 0;       ///< pages of that buffer
  std::uint64_t op_tag = 0;
};
static_assert(sizeof(OpSignature) == 56);

/// Returns the signature of this rank's call, without the location of shared inputs.
OpSignature signature_of(const Operation& operation, const BlockLayout& layout);

/// Returns a text that lists each rank's call if they differ, else an empty string.
std::string describe_mismatch(const OpSignature* signatures, int size);
/// Returns the ranks whose signatures differ from the majority's; a tie goes to the signature of the lowest rank.
std::vector<int> differing_ranks(const OpSignature* signatures, int size);
/// Reads the splits that the ranks of an alltoall posted: bytes sent to each rank, then bytes expected from each rank.
/// Sets splits[from * size + to]. Returns a text that describes the first pair of ranks that disagree, or a rank whose
/// sum overflows, and sets `differing` to these ranks; returns an empty string if all splits are consistent.
std::string read_splits(const std::vector<const std::byte*>& posted, std::vector<std::uint64_t>& splits,
                        std::vector<int>& differing);
/// Describes a call for messages: "allreduce of 1000 float32, sum".
std::string describe(const OpSignature& signature);

}  // namespace hookline::backend
