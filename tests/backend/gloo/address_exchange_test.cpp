// Address exchange through the store.
#include "backend/gloo/address_exchange.hpp"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/store/memory_store.hpp>

namespace hookline::gloo_transport {
namespace {

TEST(AddressExchange, RejectsInvalidAddresses) {
  MemoryStore store;
  store.set("gloo/from/1/to/0", "a");
  store.set("gloo/1", "=hookline-gloo 4");
  store.add("gloo/count", 1);
  EXPECT_THROW(exchange_addresses(store, 0, 2, {{}, {'a', 'b'}}, deadline_after(std::chrono::seconds(60))), Mismatch);
}

// A store that counts what ranks read from it.
class CountingStore final : public Store {
 public:
  std::string describe() const override { return "CountingStore"; }
  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::string get(const std::string& key) override {
    std::string value = store_.get(key);
    bytes_read += value.size();
    return value;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_.add(key, amount); }
  using Store::wait;
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override { store_.wait(keys, timeout); }
  bool check(const std::vector<std::string>& keys) override { return store_.check(keys); }
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override {
    return store_.compare_set(key, expected, desired);
  }
  bool delete_key(const std::string& key) override { return store_.delete_key(key); }
  std::int64_t num_keys() override { return store_.num_keys(); }

  std::atomic<std::size_t> bytes_read = 0;

 private:
  MemoryStore store_;
};

TEST(AddressExchange, RanksReadOnlyTheirOwnAddressesAndLeaveNoKeys) {
  constexpr int kRanks = 512;
  constexpr std::size_t kAddressBytes = 280;
  CountingStore store;
  const auto address = [](int from, int to) {
    std::vector<char> bytes(kAddressBytes, static_cast<char>(from));
    bytes[0] = static_cast<char>(to);
    return bytes;
  };
  std::atomic<int> wrong = 0;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      Addresses own(kRanks);
      for (int r = 0; r < kRanks; ++r) own[static_cast<std::size_t>(r)] = address(rank, r);
      const Addresses found = exchange_addresses(store, rank, kRanks, own, deadline_after(std::chrono::seconds(60)));
      for (int r = 0; r < kRanks; ++r) {
        if (r != rank && found[static_cast<std::size_t>(r)] != address(r, rank)) ++wrong;
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LT(store.bytes_read, 2 * kRanks * kRanks * kAddressBytes);  // each rank reads only its own addresses
  EXPECT_EQ(store.num_keys(), 0);
}

}  // namespace
}  // namespace hookline::gloo_transport
