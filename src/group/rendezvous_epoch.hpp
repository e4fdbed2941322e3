// RendezvousEpoch: isolates successive rendezvous in the same store by a key prefix.
#pragma once

#include <cstdint>
#include <memory>

#include <hookline/store/store.hpp>

namespace hookline::group {

/// One attempt of all ranks to create a group. A rank joins the first epoch that it has not joined before and that is
/// not abandoned. An epoch is abandoned when a rank fails in it or moves on to the next one. So the ranks join
/// the same epoch again, even if one of them failed in an earlier epoch or never joined it.
class RendezvousEpoch {
 public:
  /// Joins an epoch. Throws the store's errors, as do the methods below.
  RendezvousEpoch(const std::shared_ptr<Store>& store, int rank);

  /// Returns a store with the prefix of this epoch, which has no keys of earlier epochs.
  std::shared_ptr<Store> store() const;
  /// Marks the epoch as abandoned, after a failure of this rank.
  void abandon();
  /// Deletes the keys of earlier epochs. Call only after all ranks have joined this one.
  void delete_earlier_keys();

 private:
  const std::shared_ptr<Store> store_;
  std::int64_t epoch_ = 0;
};

}  // namespace hookline::group
