// How an implementation comes under the suite of store_contract.cpp, which says what every store must do.
//
//   INSTANTIATE_TEST_SUITE_P(Memory, StoreContract, ::testing::Values(StoreMaker{[] { return …; }}));
//
// `make` gives a new, empty store; `again` another object on the same contents, as a second process would have it, and
// may be left out where there is only one object. Each test has a store of its own.
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

struct StoreMaker {
  std::function<std::shared_ptr<Store>()> make;
  std::function<std::shared_ptr<Store>(const std::shared_ptr<Store>&)> again = [](const auto& store) { return store; };

  /// For GoogleTest, which would print the bytes of the functions.
  friend void PrintTo(const StoreMaker&, std::ostream* out) { *out << "a maker of stores"; }
};

class StoreContract : public ::testing::TestWithParam<StoreMaker> {
 protected:
  std::shared_ptr<Store> store = GetParam().make();

  std::shared_ptr<Store> another() { return GetParam().again(store); }

  /// Runs `body(i, store)` in `count` threads, each with an object of its own where there can be several.
  template <class F>
  void in_threads(int count, F body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&body, i, own = another()] {
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
