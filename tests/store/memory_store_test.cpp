// Tests for MemoryStore and PrefixStore, under the store contract.
#include <hookline/core/interrupt.hpp>
#include <hookline/store/memory_store.hpp>
#include <hookline/store/prefix_store.hpp>

#include "contract/store_contract.hpp"

namespace hookline::contract {

INSTANTIATE_TEST_SUITE_P(Memory, StoreContract,
                         ::testing::Values(StoreFactory{[] { return std::make_shared<MemoryStore>(); }}));

INSTANTIATE_TEST_SUITE_P(Prefix, StoreContract, ::testing::Values(StoreFactory{[] {
                           return std::make_shared<PrefixStore>("p", std::make_shared<MemoryStore>());
                         }}));

}  // namespace hookline::contract

namespace hookline {
namespace {

TEST(PrefixStore, KeysCarryThePrefix) {
  const auto inner = std::make_shared<MemoryStore>();
  PrefixStore store("p", inner);
  inner->set("k", "outside");
  inner->set("px", "outside");
  store.set("k", "v");
  EXPECT_EQ(inner->get("p/k"), "v");
  EXPECT_EQ(store.list_keys(), std::vector<std::string>{"k"});
  EXPECT_EQ(store.num_keys(), 1);
  EXPECT_TRUE(store.delete_key("k"));
  EXPECT_EQ(inner->get("k"), "outside");
}

TEST(PrefixStore, TimeoutIsThatOfTheUnderlyingStore) {
  const auto inner = std::make_shared<MemoryStore>(Milliseconds(7));
  PrefixStore store("p", inner);
  EXPECT_EQ(store.timeout(), Milliseconds(7));
  store.set_timeout(Milliseconds(9));
  EXPECT_EQ(inner->timeout(), Milliseconds(9));
  EXPECT_EQ(store.describe(), "PrefixStore(p, MemoryStore)");
  EXPECT_EQ(store.host(), "");
  EXPECT_THROW(PrefixStore("p", nullptr), InvalidArgument);
}

// A wait rechecks its condition every kInterruptPeriod, so only many consecutive waits show that they are woken.
TEST(MemoryStore, WaitsAreWokenWithoutPolling) {
  MemoryStore store(std::chrono::seconds(20));
  constexpr int kRounds = 100;
  const auto play = [&store](const std::string& mine, const std::string& other) {
    for (int n = 0; n < kRounds; ++n) {
      store.set(mine + std::to_string(n), "");
      store.get(other + std::to_string(n));
    }
  };
  const auto start = Clock::now();
  std::thread partner(play, "a", "b");
  play("b", "a");
  partner.join();
  EXPECT_LT(Clock::now() - start, kRounds * kInterruptPeriod / 3);
}

class MinimalStore final : public Store {
 public:
  std::string describe() const override { return "MinimalStore"; }
  void set(const std::string&, const std::string&) override {}
  std::string get(const std::string&) override { return "value"; }
  std::int64_t add(const std::string&, std::int64_t amount) override { return amount; }
  void wait(const std::vector<std::string>&, Milliseconds) override {}
  bool check(const std::vector<std::string>&) override { return true; }
  bool delete_key(const std::string&) override { return true; }
  std::int64_t num_keys() override { return 0; }
};

TEST(Store, MissingOperationsAreNamed) {
  MinimalStore store;
  EXPECT_EQ(store.multi_get({"a", "b"}), (std::vector<std::string>{"value", "value"}));
  EXPECT_THROW(store.list_keys(), Unsupported);
  EXPECT_THROW(store.append("a", "b"), Unsupported);
  EXPECT_THROW(store.compare_set("a", "b", "c"), Unsupported);
  EXPECT_THROW(store.queue_push("a", "b"), Unsupported);
  EXPECT_THROW(store.queue_len("a"), Unsupported);
  try {
    store.queue_pop("a");
    FAIL();
  } catch (const Unsupported& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("MinimalStore"));
    EXPECT_THAT(e.what(), ::testing::HasSubstr("queue_pop"));
  }
}

}  // namespace
}  // namespace hookline
