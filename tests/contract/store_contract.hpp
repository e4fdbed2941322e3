// Instantiates the store contract (store_contract.cpp) for an implementation:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, StoreContract, ::testing::Values(StoreFactory{[] { return …; }}));
//
// `make` creates a new, empty store. `reopen` creates another object with the same contents, as a second process would;
// omit it if only one object can exist. Each test has its own store.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/store/store.hpp>

namespace hookline::contract {

struct StoreFactory {
  std::function<std::shared_ptr<Store>()> make;
  std::function<std::shared_ptr<Store>(const std::shared_ptr<Store>&)> reopen = [](const auto& store) { return store; };

  /// Without it, GoogleTest prints the bytes of the functions.
  friend void PrintTo(const StoreFactory&, std::ostream* out) { *out << "store factory"; }
};

class StoreContract : public ::testing::TestWithParam<StoreFactory> {
 protected:
  std::shared_ptr<Store> store = GetParam().make();

  std::shared_ptr<Store> reopened() { return GetParam().reopen(store); }

  /// Runs `body(i, store)` in `count` threads, each with its own object if the store supports several.
  template <class F>
  void in_threads(int count, F body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&body, i, own = reopened()] {
        try {
          body(i, *own);
        } catch (const std::exception& e) {
          ADD_FAILURE() << "thread " << i << ": " << e.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  template <class E, class F>
  static std::string message_of(F f) {
    try {
      f();
    } catch (const E& e) {
      return e.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }

  static constexpr Milliseconds kShort{30};
  static constexpr Milliseconds kLong{20000};
};

}  // namespace hookline::contract
