// RendezvousEpoch. Epochs are numbered from 1. A counter per rank holds the last epoch that the rank joined.
#include "group/rendezvous_epoch.hpp"

#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include <hookline/store/prefix_store.hpp>

namespace hookline::group {
namespace {

// torchrun may restart all ranks with the same store after some had joined more epochs than others, so each restart has
// its own prefix.
std::string job_prefix() {
  const char* const restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return restarts && *restarts ? fmt::format("hookline/restart{}", restarts) : "hookline";
}

std::string abandoned_key(std::int64_t epoch) { return fmt::format("abandoned/{}", epoch); }

}  // namespace

RendezvousEpoch::RendezvousEpoch(const std::shared_ptr<Store>& store, int rank)
    : store_(std::make_shared<PrefixStore>(job_prefix(), store)) {
  const std::string joined_key = fmt::format("joined/{}", rank);
  const std::int64_t last_epoch = store_->add(joined_key, 0);
  if (last_epoch > 0) store_->add(abandoned_key(last_epoch), 1);
  epoch_ = last_epoch + 1;
  while (store_->add(abandoned_key(epoch_), 0) > 0) ++epoch_;
  store_->add(joined_key, epoch_ - last_epoch);
}

std::shared_ptr<Store> RendezvousEpoch::store() const {
  return std::make_shared<PrefixStore>(fmt::format("epoch{}", epoch_), store_);
}

void RendezvousEpoch::delete_earlier_keys() {
  for (std::int64_t earlier = epoch_ - 1; earlier > 0 && store_->delete_key(abandoned_key(earlier)); --earlier) {
  }
}

void RendezvousEpoch::abandon() { store_->add(abandoned_key(epoch_), 1); }

}  // namespace hookline::group
