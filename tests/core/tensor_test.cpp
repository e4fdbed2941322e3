// Tests for Tensor: layouts, views, copies and invalid arguments.
#include <hookline/core/tensor.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

Tensor counting(const Dims& shape) {
  Tensor t = Tensor::empty(shape, DType::i64);
  std::iota(t.data<std::int64_t>(), t.data<std::int64_t>() + t.numel(), 0);
  return t;
}

// The elements in logical order, read one at a time: the reference for the strided loops.
std::vector<std::int64_t> elements(const Tensor& t) {
  std::vector<std::int64_t> result;
  for (std::int64_t n = 0; n < t.numel(); ++n) {
    std::int64_t rest = n;
    std::int64_t at = 0;
    for (std::size_t i = t.dim(); i-- > 0;) {
      at += rest % t.shape()[i] * t.strides()[i];
      rest /= t.shape()[i];
    }
    result.push_back(t.data<const std::int64_t>()[at]);
  }
  return result;
}

TEST(Tensor, AllocatesAlignedMemoryOfEveryDtype) {
  for (int i = 0; i < 10; ++i) {
    const auto dtype = static_cast<DType>(i);
    const Tensor t = Tensor::full({3, 5}, 1, dtype);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.bytes()) % 64, 0u);
    EXPECT_EQ(t.nbytes(), 15 * size_of(dtype));
    EXPECT_EQ(t.slice(0, 2, 3).slice(1, 4, 5).item<double>(), 1.0) << name(dtype);
    EXPECT_EQ(t.slice(0, 2, 3).slice(1, 4, 5).item<int>(), 1) << name(dtype);
  }
}

TEST(Tensor, ZerosAreZero) {
  const Tensor t = Tensor::zeros({4});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(t.data<float>()[i], 0.0f);
}

TEST(Tensor, ScalarAndEmptyShapes) {
  EXPECT_EQ(Tensor::zeros({}).numel(), 1);
  EXPECT_EQ(Tensor::full({}, 7).item<float>(), 7.0f);
  EXPECT_EQ(Tensor().numel(), 0);
  const Tensor none = Tensor::zeros({3, 0, 2});
  EXPECT_EQ(none.numel(), 0);
  EXPECT_TRUE(none.is_contiguous());
  EXPECT_EQ(none.clone().shape(), (Dims{3, 0, 2}));
  EXPECT_EQ(none.reshape({0}).numel(), 0);
}

TEST(Tensor, FillRejectsValuesOutOfRange) {
  const Tensor bytes = Tensor::zeros({2}, DType::u8);
  for (const double value : {256.0, -1.0, std::nan("")}) EXPECT_THROW(bytes.fill(value), InvalidArgument) << value;
  EXPECT_THROW(Tensor::full({2}, -129, DType::i8), InvalidArgument);
  EXPECT_THROW(Tensor::full({2}, 0x1p63, DType::i64), InvalidArgument);
  EXPECT_EQ(Tensor::full({1}, 255.9, DType::u8).item<int>(), 255);
  EXPECT_EQ(Tensor::full({1}, -0x1p63, DType::i64).item<double>(), -0x1p63);
}

TEST(Tensor, BorrowSeesTheCallersElements) {
  std::vector<float> x = {1, 2, 3};
  const Tensor t = Tensor::borrow(x);
  t.data<float>()[1] = 20;
  EXPECT_THAT(x, ElementsAre(1, 20, 3));

  const std::array<double, 2> y = {4, 5};
  const Tensor fixed = Tensor::borrow(y);
  EXPECT_TRUE(fixed.read_only());
  EXPECT_EQ(fixed.data<const double>()[1], 5.0);
  EXPECT_THROW(fixed.data<double>(), InvalidArgument);
  EXPECT_THROW(fixed.mutable_bytes(), InvalidArgument);
  EXPECT_THROW(fixed.fill(0), InvalidArgument);
}

template <class R>
concept Borrowable = requires(R&& r) { Tensor::borrow(std::forward<R>(r)); };
static_assert(Borrowable<std::vector<float>&>);
static_assert(!Borrowable<std::vector<float>>, "a temporary must not be borrowed");

TEST(Tensor, ViewsKeepTheMemoryAlive) {
  std::weak_ptr<void> memory;
  Tensor view;
  {
    const Tensor t = counting({4, 6});
    memory = t.owner();
    view = t.slice(1, 1, 6, 2);
  }
  EXPECT_FALSE(memory.expired());
  EXPECT_THAT(elements(view.slice(0, 1, 2)), ElementsAre(7, 9, 11));
  view = Tensor();
  EXPECT_TRUE(memory.expired());
}

TEST(Tensor, SliceCountsFromTheEndAndClamps) {
  const Tensor t = counting({5});
  EXPECT_THAT(elements(t.slice(0, -2, 100)), ElementsAre(3, 4));
  EXPECT_THAT(elements(t.slice(0, 0, -1, 3)), ElementsAre(0, 3));
  EXPECT_EQ(t.slice(0, 4, 2).numel(), 0);
  EXPECT_EQ(t.slice(0, 3, 5).storage_offset(), 3);
  EXPECT_EQ(t.slice(0, 3, 5, INT64_MAX).strides()[0], 1) << "the step does not scale the stride of a single element";
  EXPECT_THROW(t.slice(1, 0, 1), InvalidArgument);
  EXPECT_THROW(t.slice(0, 0, 1, 0), InvalidArgument);
}

TEST(Tensor, ReshapeReturnsAViewOrThrows) {
  const Tensor t = counting({2, 3, 4});
  EXPECT_EQ(t.reshape({6, -1}).shape(), (Dims{6, 4}));
  EXPECT_EQ(t.flatten().bytes(), t.bytes());

  const Tensor rows = t.slice(2, 0, 2);  // strides 12, 4, 1: the first two dimensions can be merged
  EXPECT_EQ(elements(rows.reshape({6, 2})), elements(rows));
  EXPECT_EQ(elements(rows.reshape({1, 3, 2, 1, 2, 1})), elements(rows));
  EXPECT_THAT([&] { (void)rows.flatten(); }, ThrowsMessage<InvalidArgument>(HasSubstr("without a copy")));
  EXPECT_EQ(elements(rows.contiguous().flatten()), elements(rows));

  EXPECT_THAT([&] { (void)t.reshape({5, -1}); }, ThrowsMessage<InvalidArgument>(HasSubstr("24 elements")));
  EXPECT_THROW((void)t.reshape({25}), InvalidArgument);
  EXPECT_THROW((void)t.reshape({-1, -1}), InvalidArgument);
}

TEST(Tensor, CopiesBetweenAnyTwoLayouts) {
  std::mt19937 random(7);
  const auto strided = [&](Tensor t) {
    for (std::size_t d = 0; d < t.dim(); ++d) {
      const auto step = static_cast<std::int64_t>(random() % 3 + 1);
      const auto start = static_cast<std::int64_t>(random() % 2);
      t = t.slice(d, start, start + (3 + static_cast<std::int64_t>(d)) * step, step);
    }
    return t;
  };
  for (int round = 0; round < 200; ++round) {
    const Tensor from = strided(counting({12, 16, 20}));
    const Tensor whole = Tensor::full({12, 16, 20}, -1, DType::i64);
    const Tensor to = strided(whole);
    to.copy_from(from);
    ASSERT_EQ(elements(to), elements(from));
    std::int64_t written = 0;
    for (const std::int64_t x : elements(whole)) written += x >= 0;
    ASSERT_EQ(written, to.numel()) << "an element outside the view was written";
  }
}

TEST(Tensor, NegativeStridesRunBackwards) {
  std::vector<std::int64_t> x = {0, 1, 2, 3};
  const Tensor back = Tensor::wrap(x.data() + 3, {4}, DType::i64, {.strides = Dims{-1}});
  EXPECT_THAT(elements(back), ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(elements(back.clone()), ElementsAre(3, 2, 1, 0));
}

TEST(Tensor, CopyRequiresTheSameShapeAndDtype) {
  EXPECT_THROW(Tensor::zeros({3}).copy_from(Tensor::zeros({4})), InvalidArgument);
  EXPECT_THAT([] { Tensor::zeros({3}).copy_from(Tensor::zeros({3}, DType::f64)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("float64[3] into float32[3]")));
}

TEST(Tensor, ScalesInPlace) {
  const Tensor t = Tensor::full({2, 2}, 3);
  t.slice(1, 0, 1) *= 0.5;
  EXPECT_EQ(t.data<float>()[0], 1.5f);
  EXPECT_EQ(t.data<float>()[1], 3.0f);
  const Tensor half = Tensor::full({1}, 3, DType::bf16);
  half *= 2;
  EXPECT_EQ(half.item<float>(), 6.0f);
}

TEST(Tensor, IntegersBeyondTheMantissaOfADoubleStayExact) {
  std::vector<std::int64_t> x = {(std::int64_t{1} << 53) + 1};
  EXPECT_EQ(Tensor::borrow(x).item<std::int64_t>(), x[0]);
}

TEST(Tensor, RejectsInvalidArguments) {
  float x = 0;
  constexpr auto kHuge = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(Tensor::wrap(&x, {-1}, DType::f32), InvalidArgument);
  EXPECT_THROW(Tensor::wrap(&x, {kHuge, 2}, DType::f32), InvalidArgument);
  EXPECT_THROW(Tensor::wrap(&x, {kHuge / 2}, DType::f32), InvalidArgument);
  EXPECT_THROW(Tensor::wrap(&x, {kHuge, kHuge, 0}, DType::f32), InvalidArgument);
  EXPECT_THROW(Tensor::wrap(&x, {2, 2}, DType::f32, {.strides = Dims{kHuge, kHuge}}), InvalidArgument);
  EXPECT_THROW(Tensor::wrap(&x, {2}, DType::f32, {.strides = Dims{std::numeric_limits<std::int64_t>::min()}}),
               InvalidArgument);
  EXPECT_THROW(Tensor::wrap(&x, {2}, DType::f32, {.strides = Dims{1, 1}}), InvalidArgument);
  EXPECT_THROW(Tensor::wrap(nullptr, {1}, DType::f32), InvalidArgument);
  EXPECT_THROW(Tensor::wrap(reinterpret_cast<std::byte*>(&x) + 1, {1}, DType::f16), InvalidArgument);
  EXPECT_THROW(Tensor::zeros(Dims(17, 1)), InvalidArgument);
  EXPECT_THROW((void)Tensor::zeros({2}).item<float>(), InvalidArgument);
  EXPECT_THROW((void)Tensor::zeros({2}).data<double>(), InvalidArgument);
  EXPECT_THROW((void)Tensor::zeros({2}).view_as(DType::f64), InvalidArgument);
  EXPECT_THAT([] { Tensor::empty({std::int64_t{1} << 60}, DType::u8); },
              ThrowsMessage<ResourceError>(HasSubstr("1152921504606846976 bytes")));
}

TEST(Tensor, DescribesItself) {
  const Tensor t = Tensor::zeros({2, 3}, DType::bf16);
  EXPECT_EQ(to_string(t), "bfloat16[2, 3]");
  EXPECT_EQ(to_string(t.slice(1, 0, 2).as_read_only()), "bfloat16[2, 2] with strides [3, 1] (read-only)");
}

}  // namespace
}  // namespace hookline
