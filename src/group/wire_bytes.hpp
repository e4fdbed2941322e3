// How many bytes a rank sends for an operation, by the usual algorithms: the measure by which hooks are compared.
#pragma once

#include <cstdint>

#include <hookline/backend/collective.hpp>

namespace hookline::group {

/// What the rank gives to other ranks: a ring's share of a reduction (twice (N - 1)/N of the bytes for an allreduce),
/// each block once for each rank that gets it elsewhere. Of what a root alone sends or gets, every rank counts its
/// share.
std::uint64_t wire_bytes(const Collective& collective, int size);

}  // namespace hookline::group
