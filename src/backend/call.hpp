// What a rank calls, as the others compare it with theirs before any byte moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hookline/backend/collective.hpp>

namespace hookline::backend {

inline constexpr std::size_t kCacheLine = 64;

struct Parts;

/// What a rank calls, posted before any byte of an operation moves and compared by everybody.
struct Call {
  std::uint8_t type = 0;
  std::uint8_t dtype = 0;
  std::uint8_t reduce = 0;
  std::uint8_t sources_shared = 0;  ///< what the peers read of this rank lies in its shared region, at `offset`
  std::int32_t root = 0;
  std::uint64_t count = 0;   ///< elements
  std::uint64_t layout = 0;  ///< a hash of how the elements are cut into tensors
  double factor = 0;
  std::uint64_t offset = 0;
  std::uint32_t first_page = 0;  ///< of the buffer that `offset` lies in, and how many it has
  std::uint32_t pages = 0;
  std::uint64_t note = 0;
};
static_assert(sizeof(Call) == 56);

/// What this rank posts for others to compare with theirs; the shared offset is left to the caller.
Call call_of(const Collective& collective, const Parts& parts);

/// Lists what each rank called where they differ; empty where all agree.
std::string difference(const Call* calls, int size);
/// Returns the ranks whose calls differ from the call that most ranks made; between equally many, the lowest rank's.
std::vector<int> differing_ranks(const Call* calls, int size);
/// Reads what the ranks of an alltoall posted, each how many bytes go to each rank and then how many come from each:
/// splits[from * size + to]. The first pair of ranks that disagree, or a rank whose sum is no size, in words and in
/// `differing`; empty where all is well.
std::string read_splits(const std::vector<const std::byte*>& posted, std::vector<std::uint64_t>& splits,
                        std::vector<int>& differing);
/// One call in words: "allreduce of 1000 float32, sum".
std::string describe(const Call& call);

}  // namespace hookline::backend
