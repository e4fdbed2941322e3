// Bytes that a rank sends for an operation under standard algorithms; the metric for comparing hooks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <hookline/backend/operation.hpp>
#include <hookline/core/export.hpp>

namespace hookline::group {

/// Returns the bytes sent per rank: a ring's share of a reduction (2 (N - 1) / N of the bytes for an allreduce), else
/// each block once per remote receiver. Rooted operations are averaged over the ranks.
std::uint64_t wire_bytes(const Operation& operation, int size);

/// Adds sent bytes to the counter of the current CallContext, for groups that do not run on a Backend. Construct it
/// before the call and use it afterwards: if the call ran on a group that counts itself, nothing is added.
class HOOKLINE_EXPORT SentBytes {
 public:
  SentBytes();
  void add(const Operation& operation, int size) const;

 private:
  const std::shared_ptr<std::atomic<std::uint64_t>> counter_;
  const std::uint64_t initial_;
};

}  // namespace hookline::group
