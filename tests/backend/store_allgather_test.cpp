// Allgather through a store, with and without missing ranks.
#include "backend/store_allgather.hpp"

#include <future>

#include <gmock/gmock.h>

#include <hookline/store/memory_store.hpp>

namespace hookline::backend {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(StoreAllgather, ReturnsTheValuesOfAllRanks) {
  MemoryStore store;
  const auto join_as = [&](int rank) {
    return store_allgather(store, "test", rank, 2, rank == 0 ? "zero" : "", deadline_after(std::chrono::seconds(60)));
  };
  auto other = std::async(std::launch::async, join_as, 1);
  EXPECT_THAT(join_as(0), ::testing::ElementsAre("zero", ""));
  EXPECT_THAT(other.get(), ::testing::ElementsAre("zero", ""));
}

TEST(StoreAllgather, FirstTimeoutNamesTheMissingRankOnAllRanks) {
  MemoryStore store;
  const auto join_as = [&](int rank, Milliseconds timeout) {
    store_allgather(store, "test", rank, 3, "here", deadline_after(timeout));
  };
  auto other = std::async(std::launch::async, join_as, 2, std::chrono::hours(1));
  store.wait({"test/2"});
  EXPECT_THAT([&] { join_as(0, Milliseconds(20)); }, ThrowsMessage<Timeout>(HasSubstr("rank 1 did not join")));
  EXPECT_THAT([&] { other.get(); }, ThrowsMessage<Timeout>(HasSubstr("rank 1 did not join")));
}

TEST(StoreAllgather, LateRankFailsToo) {
  MemoryStore store;
  const auto join_as = [&](int rank, Milliseconds timeout) {
    store_allgather(store, "test", rank, 2, "here", deadline_after(timeout));
  };
  EXPECT_THAT([&] { join_as(0, Milliseconds(20)); }, ThrowsMessage<Timeout>(HasSubstr("rank 1 did not join")));
  EXPECT_THAT([&] { join_as(1, std::chrono::hours(1)); },
              ThrowsMessage<Timeout>(HasSubstr("rank 1 of 2 joined the test group after")));
}

// A user-defined store may lack compare_set.
class PlainStore final : public Store {
 public:
  explicit PlainStore(Store& store) : store_(store) {}
  std::string describe() const override { return "PlainStore"; }
  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::string get(const std::string& key) override { return store_.get(key); }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_.add(key, amount); }
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override { store_.wait(keys, timeout); }
  bool check(const std::vector<std::string>& keys) override { return store_.check(keys); }
  bool delete_key(const std::string& key) override { return store_.delete_key(key); }
  std::int64_t num_keys() override { return store_.num_keys(); }

 private:
  Store& store_;
};

TEST(StoreAllgather, WorksWithoutCompareSet) {
  MemoryStore memory;
  const auto join_as = [&](int rank) {
    PlainStore store(memory);
    return store_allgather(store, "test", rank, 2, "", deadline_after(std::chrono::seconds(60)));
  };
  auto other = std::async(std::launch::async, join_as, 1);
  EXPECT_THAT(join_as(0), ::testing::ElementsAre("", ""));
  EXPECT_THAT(other.get(), ::testing::ElementsAre("", ""));
}

}  // namespace
}  // namespace hookline::backend
