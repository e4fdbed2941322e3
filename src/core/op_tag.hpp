// Operation tags: 64-bit numbers in operation headers that identify the step and bucket of a collective.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hookline::core {

/// Returns the tag of a reducer's bucket: the step modulo 2^30 in bits 32 to 61, the bucket in bits 0 to 31.
constexpr std::uint64_t bucket_tag(std::uint64_t step, std::uint64_t bucket) {
  return (step & 0x3fffffff) << 32 | bucket;
}

/// Set in tags that carry the caller's step_id instead of a bucket.
inline constexpr std::uint64_t kHasStepId = std::uint64_t{1} << 62;
/// Returns the tag of the first bucket of a step with a caller-supplied step_id.
constexpr std::uint64_t step_id_tag(std::uint64_t step, std::uint32_t id) { return kHasStepId | bucket_tag(step, id); }

/// Returns the tag of a reducer's control collectives in a step, outside its buckets.
constexpr std::uint64_t step_tag(std::uint64_t step) { return bucket_tag(step, 0xffffffff); }

/// Returns the tag of tensors that must have the same layout on all ranks, given a hash of the layout. Sets bit 63.
constexpr std::uint64_t content_tag(std::uint64_t hash) { return hash | std::uint64_t{1} << 63; }

/// Returns the step of a tag; nullopt if it has none.
constexpr std::optional<std::uint64_t> step_of(std::uint64_t op_tag) {
  return op_tag == 0 || op_tag >> 63 != 0 ? std::nullopt : std::optional(op_tag >> 32 & 0x3fffffff);
}
/// Returns the step_id of a tag; nullopt if it has none.
constexpr std::optional<std::uint64_t> step_id_of(std::uint64_t op_tag) {
  return !step_of(op_tag) || (op_tag & kHasStepId) == 0 ? std::nullopt : std::optional(op_tag & 0xffffffff);
}
/// Returns the bucket of a tag; nullopt if it has none.
constexpr std::optional<std::uint64_t> bucket_of(std::uint64_t op_tag) {
  if (step_id_of(op_tag)) return 0;
  return !step_of(op_tag) || op_tag == step_tag(op_tag >> 32) ? std::nullopt : std::optional(op_tag & 0xffffffff);
}

/// Returns a description for error messages.
std::string describe_op_tag(std::uint64_t op_tag);

}  // namespace hookline::core
