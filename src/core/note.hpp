// Operation tags: 64-bit numbers in operation headers that identify the step and bucket of a collective.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hookline::core {

/// Returns the tag of a reducer's bucket: the step modulo 2^30 in bits 32 to 61, the bucket in bits 0 to 31.
constexpr std::uint64_t bucket_note(std::uint64_t step, std::uint64_t bucket) {
  return (step & 0x3fffffff) << 32 | bucket;
}

/// Set in tags that carry the caller's step_id instead of a bucket.
inline constexpr std::uint64_t kNumbered = std::uint64_t{1} << 62;
/// Returns the tag of the first bucket of a step with a caller-supplied step_id.
constexpr std::uint64_t step_id_note(std::uint64_t step, std::uint32_t id) { return kNumbered | bucket_note(step, id); }

/// Returns the tag of a reducer's control collectives in a step, outside its buckets.
constexpr std::uint64_t step_note(std::uint64_t step) { return bucket_note(step, 0xffffffff); }

/// Returns the tag of tensors that must have the same layout on all ranks, given a hash of the layout. Sets bit 63.
constexpr std::uint64_t content_note(std::uint64_t hash) { return hash | std::uint64_t{1} << 63; }

/// Returns the step of a tag; nullopt if it has none.
constexpr std::optional<std::uint64_t> step_of(std::uint64_t note) {
  return note == 0 || note >> 63 != 0 ? std::nullopt : std::optional(note >> 32 & 0x3fffffff);
}
/// Returns the step_id of a tag; nullopt if it has none.
constexpr std::optional<std::uint64_t> step_id_of(std::uint64_t note) {
  return !step_of(note) || (note & kNumbered) == 0 ? std::nullopt : std::optional(note & 0xffffffff);
}
/// Returns the bucket of a tag; nullopt if it has none.
constexpr std::optional<std::uint64_t> bucket_of(std::uint64_t note) {
  if (step_id_of(note)) return 0;
  return !step_of(note) || note == step_note(note >> 32) ? std::nullopt : std::optional(note & 0xffffffff);
}

/// Returns a description for error messages.
std::string describe_note(std::uint64_t note);

}  // namespace hookline::core
