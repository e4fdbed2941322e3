// Groups that are made one after another in one store, which outlives them: each has a place of its own there.
#pragma once

#include <cstdint>
#include <memory>

#include <hookline/store/store.hpp>

namespace hookline::group {

/// One attempt of all ranks of a store at making a group. A rank joins the first round that is new to it and not
/// closed; a round is closed for those who have not joined it yet when a rank fails in it, or leaves it for the next.
/// So the ranks meet again although one of them failed in an earlier round, or never came to it.
class Round {
 public:
  /// Joins. Throws what the store throws.
  Round(const std::shared_ptr<Store>& store, int rank);

  /// The place of this round, where nobody has left anything before.
  std::shared_ptr<Store> place() const;
  /// Says that this rank failed. Throws what the store throws.
  void close();
  /// Removes what earlier rounds left. Only once all ranks have joined this one. Throws what the store throws.
  void forget_earlier();

 private:
  const std::shared_ptr<Store> store_;
  std::int64_t number_ = 0;
};

}  // namespace hookline::group
