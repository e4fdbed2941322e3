// Tests StateWriter and StateReader: round trips of all types, and corrupt bytes.
#include <hookline/hook/hook_state.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/registry.hpp>

#include "hook/buckets.hpp"

namespace hookline::testing {
namespace {

static_assert(std::is_same_v<decltype(std::declval<StateReader>().integer()), std::uint64_t>);

std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }

TEST(HookState, RoundTripsEveryType) {
  const std::vector<std::byte> data = {std::byte{0}, std::byte{255}, std::byte{7}};
  const Tensor strided = Tensor::full({4, 6}, 2, DType::f64).slice(1, 0, 6, 2);
  StateWriter writer;
  writer.integer(-1);
  writer.integer(std::numeric_limits<std::int64_t>::min());
  writer.integer(std::numeric_limits<std::uint64_t>::max());
  writer.integer(std::int16_t{-7});
  writer.boolean(true);
  writer.boolean(false);
  for (const double value : {0.1, -0.0, std::nan("0x5"), std::numeric_limits<double>::denorm_min()}) {
    writer.number(value);
  }
  writer.text(std::string("a\0b", 3));
  writer.bytes(data);
  writer.bytes({});
  writer.tensor(strided);

  const std::vector<std::byte> copy = writer.state();
  const std::vector<std::byte> state = std::move(writer).state();
  EXPECT_EQ(copy, state);
  StateReader reader(state);
  EXPECT_EQ(reader.integer<int>(), -1);
  EXPECT_EQ(reader.integer<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(reader.integer(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(reader.integer<std::int16_t>(), -7);
  EXPECT_TRUE(reader.boolean());
  EXPECT_FALSE(reader.boolean());
  for (const double value : {0.1, -0.0, std::nan("0x5"), std::numeric_limits<double>::denorm_min()}) {
    EXPECT_EQ(bits_of(reader.number()), bits_of(value)) << value;
  }
  EXPECT_EQ(reader.text(), std::string("a\0b", 3));
  EXPECT_EQ(reader.bytes(), data);
  EXPECT_TRUE(reader.bytes().empty());
  EXPECT_TRUE(same_bits(reader.tensor(), strided.clone()));
  reader.expect_end();
}

TEST(HookState, RejectsIntegersOutOfRange) {
  StateWriter writer;
  writer.integer(-1);
  writer.integer(300);
  EXPECT_THROW((void)StateReader(writer.state()).integer(), InvalidArgument) << "negative";
  StateReader reader(writer.state());
  EXPECT_EQ(reader.integer<std::int8_t>(), -1);
  EXPECT_THROW((void)reader.integer<std::uint8_t>(), InvalidArgument);
}

TEST(HookState, RejectsOtherTypesAndTruncation) {
  const auto fails = [](const StateWriter& writer, const auto& read) {
    const std::vector<std::byte>& state = writer.state();
    StateReader whole(state);
    read(whole);
    whole.expect_end();
    for (std::size_t size = 0; size < state.size(); ++size) {
      StateReader reader(std::span<const std::byte>(state).first(size));
      EXPECT_THROW(read(reader), InvalidArgument) << "the first " << size << " bytes";
    }
  };
  StateWriter number, integer, boolean, text, bytes;
  number.number(1.5);
  integer.integer(-3);
  boolean.boolean(true);
  text.text("abc");
  bytes.bytes(std::vector<std::byte>(3));
  fails(number, [](StateReader& r) { (void)r.number(); });
  fails(integer, [](StateReader& r) { (void)r.integer<int>(); });
  fails(boolean, [](StateReader& r) { (void)r.boolean(); });
  fails(text, [](StateReader& r) { (void)r.text(); });
  fails(bytes, [](StateReader& r) { (void)r.bytes(); });
  EXPECT_THROW((void)StateReader(number.state()).integer(), InvalidArgument);
  EXPECT_THROW((void)StateReader(integer.state()).number(), InvalidArgument);
  EXPECT_THROW((void)StateReader(text.state()).bytes(), InvalidArgument);
  EXPECT_THROW((void)StateReader(bytes.state()).text(), InvalidArgument);
  EXPECT_THROW((void)StateReader(integer.state()).boolean(), InvalidArgument);
  std::vector<std::byte> corrupt = boolean.state();
  corrupt.back() = std::byte{2};
  EXPECT_THROW((void)StateReader(corrupt).boolean(), InvalidArgument);
}

// A hook with custom state overrides two virtual functions. Users save and restore it like any other hook, even inside
// a wrapper.
class CountingHook final : public CppCommHookInterface<double> {
 public:
  using CppCommHookInterface::CppCommHookInterface;
  Future<HookResult> run_hook(GradBucket& bucket) override {
    state_ += 0.1;
    co_return bucket.buffer();
  }
  void save(StateWriter& writer) const override { writer.number(state_); }
  void load(StateReader& reader) override { state_ = reader.number(); }
  double value() const { return state_; }
};

TEST(HookState, SavesHooksWithNumbers) {
  const auto group = single_rank_group();
  const auto hook = std::make_shared<CountingHook>(0.0);
  const HookPtr wrapped = wrap(hook, "log", group);
  (void)run(hook, GradBucket::of(Tensor::zeros({3})));
  const auto restored = std::make_shared<CountingHook>(7.0);
  load_state(*wrap(restored, "log", group), *group, save_state(*wrapped, *group));
  EXPECT_EQ(restored->value(), 0.1);
}

}  // namespace
}  // namespace hookline::testing
