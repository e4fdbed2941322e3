// Contract of stores.
#include "contract/store_contract.hpp"

#include <atomic>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>

#include <hookline/core/interrupt.hpp>

namespace hookline::contract {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreContract);

TEST_P(StoreContract, SetAndGet) {
  store->set("k", "v");
  EXPECT_EQ(store->get("k"), "v");
  EXPECT_EQ(reopened()->get("k"), "v");
  store->set("k", "w");
  EXPECT_EQ(reopened()->get("k"), "w");
}

TEST_P(StoreContract, ValuesAreBinarySafe) {
  std::string all(512, '\0');
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i);
  store->set("bytes", all);
  EXPECT_EQ(store->get("bytes"), all);
  store->set("empty", "");
  EXPECT_EQ(store->get("empty"), "");
  EXPECT_TRUE(store->check({"empty"}));
  store->set("", "no name");
  EXPECT_EQ(store->get(""), "no name");
  store->set("key with spaces/ä\n", "x");
  EXPECT_EQ(store->get("key with spaces/ä\n"), "x");
}

TEST_P(StoreContract, ValuesMayBeLarge) {
  std::string large(8 << 20, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 2654435761u >> 13);
  store->set("large", large);
  EXPECT_TRUE(reopened()->get("large") == large);
}

TEST_P(StoreContract, AddIncrements) {
  EXPECT_EQ(store->add("c", 5), 5);
  EXPECT_EQ(reopened()->add("c", -7), -2);
  EXPECT_EQ(store->get("c"), "-2");
  EXPECT_EQ(store->add("c", 0), -2);
  store->set("set", "41");
  EXPECT_EQ(store->add("set", 1), 42);
  store->set("empty", "");
  EXPECT_EQ(store->add("empty", 3), 3);
}

TEST_P(StoreContract, AddRejectsNonNumbersWithoutSideEffects) {
  for (const char* text : {"abc", "12x", " 1", "+1", "-", "99999999999999999999"}) {
    store->set("t", text);
    EXPECT_THROW(store->add("t", 1), InvalidArgument) << text;
    EXPECT_EQ(reopened()->get("t"), text);
  }
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(store->add("o", kMax), kMax);
  EXPECT_THROW(store->add("o", 1), InvalidArgument);
  EXPECT_EQ(store->add("o", -kMax), 0);
}

TEST_P(StoreContract, CompareSet) {
  EXPECT_EQ(store->compare_set("a", "x", "y"), "x");
  EXPECT_FALSE(store->check({"a"}));
  EXPECT_EQ(store->compare_set("a", "", "y"), "y");
  EXPECT_EQ(store->compare_set("a", "q", "z"), "y");
  EXPECT_EQ(store->compare_set("a", "y", "z"), "z");
  EXPECT_EQ(reopened()->get("a"), "z");
}

TEST_P(StoreContract, CheckAndDelete) {
  EXPECT_TRUE(store->check({}));
  EXPECT_FALSE(store->check({"a"}));
  store->set("a", "1");
  EXPECT_TRUE(store->check({"a"}));
  EXPECT_FALSE(store->check({"a", "b"}));
  EXPECT_FALSE(store->delete_key("b"));
  EXPECT_TRUE(store->delete_key("a"));
  EXPECT_FALSE(reopened()->check({"a"}));
  EXPECT_FALSE(store->delete_key("a"));
}

// Compares differences, because a TCP server has a key of its own.
TEST_P(StoreContract, NumKeysAndListKeys) {
  const auto before = store->num_keys();
  store->set("a", "1");
  store->add("b", 1);
  store->append("c", "x");
  EXPECT_EQ(store->num_keys() - before, 3);
  EXPECT_THAT(reopened()->list_keys(), ::testing::IsSupersetOf({"a", "b", "c"}));
  EXPECT_EQ(static_cast<std::int64_t>(store->list_keys().size()) - before, 3);
  store->delete_key("b");
  EXPECT_EQ(store->num_keys() - before, 2);
  EXPECT_THAT(store->list_keys(), ::testing::Not(::testing::Contains("b")));
}

TEST_P(StoreContract, Append) {
  store->append("a", "x");
  reopened()->append("a", std::string("\0y", 2));
  EXPECT_EQ(store->get("a"), std::string("x\0y", 3));
}

TEST_P(StoreContract, CloneSharesValuesButNotTimeout) {
  store->set_timeout(kLong);
  auto clone = store->clone();
  ASSERT_NE(clone, nullptr);
  EXPECT_EQ(clone->has_extended_api(), store->has_extended_api());
  EXPECT_EQ(clone->timeout(), kLong);
  clone->set_timeout(kShort);
  EXPECT_EQ(store->timeout(), kLong);
  store->set("k", "v");
  EXPECT_TRUE(store->check({"k"}));
  EXPECT_EQ(clone->get("k"), "v");
  clone->queue_push("q", "element");
  EXPECT_EQ(clone->queue_len("q"), 1);
  EXPECT_EQ(store->queue_pop("q"), "element");
  store.reset();
  EXPECT_EQ(clone->get("k"), "v");
}

TEST_P(StoreContract, Multi) {
  store->multi_set({"a", "b"}, {"1", ""});
  EXPECT_EQ(store->multi_get({"b", "a", "b"}), (std::vector<std::string>{"", "1", ""}));
  EXPECT_TRUE(store->multi_get({}).empty());
  store->multi_set({}, {});
  EXPECT_THROW(store->multi_set({"a", "b"}, {"1"}), InvalidArgument);
  store->set_timeout(kShort);
  EXPECT_THROW(store->multi_get({"a", "missing"}), Timeout);
}

TEST_P(StoreContract, QueueIsFirstInFirstOut) {
  EXPECT_EQ(store->queue_len("q"), 0);
  EXPECT_THROW(store->queue_pop("q", false), InvalidArgument);
  store->queue_push("q", "1");
  reopened()->queue_push("q", std::string("\0", 1));
  store->queue_push("q", "");
  EXPECT_EQ(store->queue_len("q"), 3);
  EXPECT_TRUE(store->check({"q"}));
  store->wait({"q"}, kShort);
  EXPECT_EQ(reopened()->queue_pop("q"), "1");
  EXPECT_EQ(store->queue_pop("q", false), std::string("\0", 1));
  EXPECT_EQ(store->queue_pop("q"), "");
  EXPECT_EQ(store->queue_len("q"), 0);
  EXPECT_FALSE(store->check({"q"}));
}

TEST_P(StoreContract, QueuesAndValuesAreSeparate) {
  const auto before = store->num_keys();
  store->queue_push("q", "element");
  EXPECT_EQ(store->num_keys(), before);
  EXPECT_THAT(store->list_keys(), ::testing::Not(::testing::Contains("q")));
  EXPECT_FALSE(store->delete_key("q"));
  store->set("q", "value");
  EXPECT_EQ(store->queue_pop("q"), "element");
  EXPECT_EQ(store->queue_len("q"), 0);
  EXPECT_EQ(store->get("q"), "value");
}

TEST_P(StoreContract, TimeoutNamesKeyStoreAndTime) {
  store->set_timeout(Milliseconds(31));
  EXPECT_EQ(store->timeout(), Milliseconds(31));
  for (const auto& text :
       {message_of<Timeout>([&] { store->get("zz"); }), message_of<Timeout>([&] { store->wait({"zz"}); }),
        message_of<Timeout>([&] { store->queue_pop("zz"); })}) {
    EXPECT_THAT(text, ::testing::HasSubstr("zz"));
    EXPECT_THAT(text, ::testing::HasSubstr("Store"));
    EXPECT_THAT(text, ::testing::HasSubstr("timeout after 31ms"));
  }
  store->set("a", "1");
  const auto text = message_of<Timeout>([&] { store->wait({"a", "never"}, Milliseconds(32)); });
  EXPECT_THAT(text, ::testing::HasSubstr("never"));
  EXPECT_THAT(text, ::testing::HasSubstr("timeout after 32ms"));
  store->wait({}, Milliseconds(0));
  store->set("k", "v");
  EXPECT_EQ(store->get("k"), "v");
}

TEST_P(StoreContract, TimeoutDuration) {
  const auto start = Clock::now();
  EXPECT_THROW(store->wait({"zz"}, Milliseconds(100)), Timeout);
  const auto elapsed = Clock::now() - start;
  EXPECT_GE(elapsed, Milliseconds(99));
  EXPECT_LT(elapsed, kLong);
}

TEST_P(StoreContract, WaitersAreWoken) {
  store->set_timeout(kLong);
  std::atomic<int> waiting = 0;
  in_threads(5, [&](int i, Store& own) {
    own.set_timeout(kLong);
    if (i == 4) {
      while (waiting < 4) std::this_thread::yield();
      own.set("now", "x");
      own.add("count", 3);
      own.append("text", "y");
      own.queue_push("q", "z");
      return;
    }
    ++waiting;
    if (i == 0) {
      EXPECT_EQ(own.get("now"), "x");
    } else if (i == 1) {
      own.wait({"now", "count", "text"}, kLong);
      EXPECT_EQ(own.get("count"), "3");
    } else if (i == 2) {
      EXPECT_EQ(own.queue_pop("q"), "z");
    } else {
      EXPECT_EQ(own.multi_get({"text", "now"}), (std::vector<std::string>{"y", "x"}));
    }
  });
}

TEST_P(StoreContract, ConcurrentAddsAreExact) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 100;
  in_threads(kThreads, [&](int i, Store& own) {
    for (int round = 0; round < kRounds; ++round) own.add("sum", i + 1);
  });
  EXPECT_EQ(store->add("sum", 0), kRounds * (1 + 2 + 3 + 4));
}

TEST_P(StoreContract, CompareSetHasOneWinner) {
  std::atomic<int> winners = 0;
  in_threads(4, [&](int i, Store& own) {
    const std::string mine = std::to_string(i);
    if (own.compare_set("leader", "", mine) == mine) ++winners;
  });
  EXPECT_EQ(winners, 1);
}

TEST_P(StoreContract, QueueElementsAreDeliveredOnce) {
  constexpr int kPerThread = 50;
  std::mutex mutex;
  std::multiset<std::string> seen;
  in_threads(4, [&](int i, Store& own) {
    own.set_timeout(kLong);
    for (int n = 0; n < kPerThread; ++n) {
      if (i < 2) {
        own.queue_push("q", std::to_string(i * kPerThread + n));
      } else {
        std::string value = own.queue_pop("q");
        const std::lock_guard lock(mutex);
        seen.insert(std::move(value));
      }
    }
  });
  std::multiset<std::string> expected;
  for (int n = 0; n < 2 * kPerThread; ++n) expected.insert(std::to_string(n));
  EXPECT_EQ(seen, expected);
}

TEST_P(StoreContract, BarrierIsReusable) {
  constexpr int kThreads = 3;
  constexpr int kRounds = 40;
  std::atomic<int> arrived = 0;
  in_threads(kThreads, [&](int, Store& own) {
    for (int round = 0; round < kRounds; ++round) {
      ++arrived;
      own.barrier("b", kThreads, kLong);
      EXPECT_GE(arrived, (round + 1) * kThreads);
    }
  });
  EXPECT_EQ(arrived, kRounds * kThreads);
}

TEST_P(StoreContract, BarrierTimeoutNamesTheBarrier) {
  const auto text = message_of<Timeout>([&] { store->barrier("lonely", 2, Milliseconds(33)); });
  EXPECT_THAT(text, ::testing::HasSubstr("lonely"));
  EXPECT_THAT(text, ::testing::HasSubstr("timeout after 33ms"));
  EXPECT_THROW(store->barrier("b", 0, kShort), InvalidArgument);
  store->barrier("alone", 1, kShort);
}

TEST_P(StoreContract, WaitForPresentKeyReturnsAtOnce) {
  store->set("k", "v");
  for (int i = 0; i < 20; ++i) store->wait({"k"}, Milliseconds(0));
}

TEST_P(StoreContract, WaitsCanBeInterrupted) {
  store->set_timeout(kLong);
  const auto start = Clock::now();
  {
    const InterruptScope scope([] { throw std::domain_error("interrupted"); });
    EXPECT_THROW(store->get("zz"), std::domain_error);
    EXPECT_THROW(store->wait({"zz"}), std::domain_error);
    EXPECT_THROW(store->queue_pop("zz"), std::domain_error);
    EXPECT_THROW(store->barrier("b", 2, kLong), std::domain_error);
  }
  EXPECT_LT(Clock::now() - start, kLong);
  store->set("k", "v");
  EXPECT_EQ(store->get("k"), "v");
}

}  // namespace hookline::contract
