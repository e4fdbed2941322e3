// Destructors of the Backend interfaces; the names of the operations.
#include <hookline/backend/backend.hpp>

#include <array>

namespace hookline {

Backend::~Backend() = default;
BlockReader::~BlockReader() = default;
InterHostReducer::~InterHostReducer() = default;

std::string_view name(OpType type) noexcept {
  constexpr std::array<std::string_view, kNumOpTypes> kNames = {
      "allreduce",
      "allreduce_coalesced",
      "reduce",
      "broadcast",
      "allgather",
      "allgather_into_tensor",
      "allgather_coalesced",
      "allgather_into_tensor_coalesced",
      "gather",
      "scatter",
      "reduce_scatter",
      "reduce_scatter_tensor",
      "reduce_scatter_tensor_coalesced",
      "alltoall",
      "alltoall_base",
      "send",
      "recv",
      "recv_anysource",
      "barrier",
      "monitored_barrier",
  };
  return kNames[static_cast<std::size_t>(type)];
}

}  // namespace hookline
