// Notes of collectives: what one belongs to, as a number that goes into its header.
#pragma once

#include <cstdint>
#include <string>

namespace hookline::core {

/// Of a bucket of a reducer: steps in the upper half, where there are never 2^31 of them.
constexpr std::uint64_t bucket_note(std::uint64_t step, std::uint64_t bucket) { return step << 32 | bucket; }

/// Of what a reducer agrees on with the others in a step, outside all buckets.
constexpr std::uint64_t step_note(std::uint64_t step) { return bucket_note(step, 0xffffffff); }

/// Of tensors that must look alike on all ranks, given a hash of what they look like.
constexpr std::uint64_t content_note(std::uint64_t hash) { return hash | std::uint64_t{1} << 63; }

/// In words, for error texts.
std::string describe_note(std::uint64_t note);

}  // namespace hookline::core
