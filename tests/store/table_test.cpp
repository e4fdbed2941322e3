// The contents of a store: what each operation returns and leaves behind.
#include "store/table.hpp"

#include <limits>

#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

namespace hookline::store {
namespace {

TEST(Table, AddKeepsDecimalText) {
  Table table;
  EXPECT_EQ(table.add("c", 5), 5);
  EXPECT_EQ(table.add("c", -7), -2);
  EXPECT_EQ(*table.find("c"), "-2");
  table.set("empty", "");
  EXPECT_EQ(table.add("empty", 3), 3);
}

TEST(Table, AddRefusesWhatIsNoNumberAndChangesNothing) {
  Table table;
  for (const char* text : {"abc", "12x", " 1", "+1", "-", "99999999999999999999"}) {
    table.set("t", text);
    EXPECT_THROW(table.add("t", 1), InvalidArgument) << text;
    EXPECT_EQ(*table.find("t"), text);
  }
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(table.add("o", kMost), kMost);
  EXPECT_THROW(table.add("o", 1), InvalidArgument);
  EXPECT_EQ(table.add("o", -kMost), 0);
}

TEST(Table, CompareSet) {
  Table table;
  bool changed = true;
  EXPECT_EQ(table.compare_set("a", "x", "y", &changed), "x");
  EXPECT_FALSE(changed);
  EXPECT_FALSE(table.has("a"));
  EXPECT_EQ(table.compare_set("a", "", "y", &changed), "y");
  EXPECT_TRUE(changed);
  EXPECT_EQ(table.compare_set("a", "q", "z"), "y");
  EXPECT_EQ(table.compare_set("a", "y", "z"), "z");
}

TEST(Table, QueuesLiveApartFromValues) {
  Table table;
  EXPECT_EQ(table.queue_pop("q"), std::nullopt);
  table.queue_push("q", "1");
  table.queue_push("q", "");
  EXPECT_EQ(table.queue_len("q"), 2);
  EXPECT_TRUE(table.check({"q"}));
  EXPECT_EQ(table.find("q"), nullptr);
  EXPECT_EQ(table.num_keys(), 0);
  EXPECT_FALSE(table.delete_key("q"));
  table.set("q", "value");
  EXPECT_EQ(table.queue_pop("q"), "1");
  EXPECT_EQ(table.queue_pop("q"), "");
  EXPECT_EQ(table.queue_pop("q"), std::nullopt);
  EXPECT_EQ(*table.find("q"), "value");
}

TEST(Table, KeysAreListedInOrder) {
  Table table;
  table.append("b", "x");
  table.append("b", "y");
  table.set("a", "");
  EXPECT_EQ(*table.find("b"), "xy");
  EXPECT_EQ(table.list_keys(), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(table.delete_key("a"));
  EXPECT_FALSE(table.check({"a", "b"}));
  EXPECT_EQ(table.num_keys(), 1);
}

}  // namespace
}  // namespace hookline::store
