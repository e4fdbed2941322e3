// How many bytes a rank sends for an operation, by the usual algorithms: the measure by which hooks are compared.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <hookline/backend/collective.hpp>
#include <hookline/core/export.hpp>

namespace hookline::group {

/// What the rank gives to other ranks: a ring's share of a reduction (twice (N - 1)/N of the bytes for an allreduce),
/// each block once for each rank that gets it elsewhere. Of what a root alone sends or gets, every rank counts its
/// share.
std::uint64_t wire_bytes(const Collective& collective, int size);

/// Adds the bytes of operations to the counter of the current CallContext, for a group that starts them elsewhere than
/// on a Backend. Constructed before the call and asked after it: where the call ran on a group that counts, as a
/// Python class may, nothing is added.
class HOOKLINE_EXPORT SentBytes {
 public:
  SentBytes();
  void add(const Collective& collective, int size) const;

 private:
  const std::shared_ptr<std::atomic<std::uint64_t>> counter_;
  const std::uint64_t before_;
};

}  // namespace hookline::group
