// Notes of collectives: what one belongs to, as a number that goes into its header.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hookline::core {

/// The note of a bucket of a reducer: the step, modulo 2^30, in bits 32 to 61; the bucket in the lower half.
constexpr std::uint64_t bucket_note(std::uint64_t step, std::uint64_t bucket) {
  return (step & 0x3fffffff) << 32 | bucket;
}

/// The note of the first bucket of a step to which the caller gave a number of its own: bit 62 is set, and the number
/// is in the place of the bucket.
inline constexpr std::uint64_t kNumbered = std::uint64_t{1} << 62;
constexpr std::uint64_t step_id_note(std::uint64_t step, std::uint32_t id) { return kNumbered | bucket_note(step, id); }

/// Of what a reducer agrees on with the others in a step, outside all buckets.
constexpr std::uint64_t step_note(std::uint64_t step) { return bucket_note(step, 0xffffffff); }

/// Of tensors that must look alike on all ranks, given a hash of what they look like.
constexpr std::uint64_t content_note(std::uint64_t hash) { return hash | std::uint64_t{1} << 63; }

/// The step that a note belongs to, of a bucket or not; nothing where it tells of none.
constexpr std::optional<std::uint64_t> step_of(std::uint64_t note) {
  return note == 0 || note >> 63 != 0 ? std::nullopt : std::optional(note >> 32 & 0x3fffffff);
}
/// The caller's number of the step, if the note has one.
constexpr std::optional<std::uint64_t> step_id_of(std::uint64_t note) {
  return !step_of(note) || (note & kNumbered) == 0 ? std::nullopt : std::optional(note & 0xffffffff);
}
/// The bucket that it is of, if any.
constexpr std::optional<std::uint64_t> bucket_of(std::uint64_t note) {
  if (step_id_of(note)) return 0;
  return !step_of(note) || note == step_note(note >> 32) ? std::nullopt : std::optional(note & 0xffffffff);
}

/// In words, for error texts.
std::string describe_note(std::uint64_t note);

}  // namespace hookline::core
