// RendezvousEpoch. Epochs are numbered from 1. A counter per rank holds the last epoch that the rank joined.
#include "group/round.hpp"

#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include <hookline/store/prefix_store.hpp>

namespace hookline::group {
namespace {

// torchrun may restart all ranks with the same store after some had joined more epochs than others, so each restart has
// its own prefix.
std::string place_of_processes() {
  const char* const restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return restarts && *restarts ? fmt::format("hookline/restart{}", restarts) : "hookline";
}

std::string closed_key(std::int64_t number) { return fmt::format("closed/{}", number); }

}  // namespace

Round::Round(const std::shared_ptr<Store>& store, int rank)
    : store_(std::make_shared<PrefixStore>(place_of_processes(), store)) {
  const std::string joined = fmt::format("joined/{}", rank);
  const std::int64_t last = store_->add(joined, 0);
  if (last > 0) store_->add(closed_key(last), 1);
  number_ = last + 1;
  while (store_->add(closed_key(number_), 0) > 0) ++number_;
  store_->add(joined, number_ - last);
}

std::shared_ptr<Store> Round::place() const {
  return std::make_shared<PrefixStore>(fmt::format("round{}", number_), store_);
}

void Round::forget_earlier() {
  for (std::int64_t earlier = number_ - 1; earlier > 0 && store_->delete_key(closed_key(earlier)); --earlier) {
  }
}

void Round::close() { store_->add(closed_key(number_), 1); }

}  // namespace hookline::group
