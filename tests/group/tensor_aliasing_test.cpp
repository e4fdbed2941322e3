// Tests tensor aliasing: views of every kind, compared with an elementwise reference.
#include "group/tensor_aliasing.hpp"

#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace hookline::group {
namespace {

std::multiset<std::int64_t> addresses(const Tensor& t, std::size_t dim = 0, std::int64_t at = 0) {
  if (dim == t.dim()) return {at + t.storage_offset()};
  std::multiset<std::int64_t> all;
  for (std::int64_t i = 0; i < t.shape()[dim]; ++i) all.merge(addresses(t, dim + 1, at + i * t.strides()[dim]));
  return all;
}

Tensor view(std::vector<float>& memory, const Dims& shape, const Dims& strides, std::int64_t offset) {
  return Tensor::wrap(memory.data() + offset, shape, DType::f32, {.strides = strides});
}

TEST(TensorAliasing, SlicesOfOneTensor) {
  const Tensor t = Tensor::zeros({6, 8});
  EXPECT_TRUE(overlap(t, t));
  EXPECT_FALSE(overlap(t.slice(0, 0, 3), t.slice(0, 3, 6)));
  EXPECT_FALSE(overlap(t.slice(1, 0, 1), t.slice(1, 1, 2))) << "columns";
  EXPECT_FALSE(overlap(t.slice(1, 0, 4), t.slice(1, 4, 8))) << "blocks of columns";
  EXPECT_TRUE(overlap(t.slice(1, 0, 5), t.slice(1, 4, 8)));
  EXPECT_FALSE(overlap(t.flatten().slice(0, 0, 48, 2), t.flatten().slice(0, 1, 48, 2)));
  EXPECT_TRUE(overlap(t.flatten().slice(0, 0, 48, 2), t.flatten().slice(0, 4, 8)));
  EXPECT_FALSE(overlap(t, Tensor::zeros({6, 8})));
  EXPECT_FALSE(overlap(t.slice(0, 0, 0), t));
  EXPECT_FALSE(overlaps_itself(t));
  EXPECT_FALSE(overlaps_itself(t.slice(1, 1, 7, 2)));
}

TEST(TensorAliasing, RandomViewsMatchElementwiseReference) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  std::vector<float> memory(400);
  int overlapping = 0;
  int repeating = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto make = [&] {
      return view(memory, {1 + below(3), 1 + below(4)}, {below(19) - 9, below(9) - 4}, 100 + below(30));
    };
    const Tensor a = make();
    const Tensor b = make();
    std::set<std::int64_t> both;
    for (const std::int64_t at : addresses(a)) {
      if (addresses(b).contains(at + a.data<float>() - b.data<float>())) both.insert(at);
    }
    EXPECT_EQ(overlap(a, b), !both.empty()) << to_string(a) << " and " << to_string(b);
    overlapping += both.empty() ? 0 : 1;
    const auto own = addresses(a);
    const bool repeats = std::set<std::int64_t>(own.begin(), own.end()).size() < own.size();
    EXPECT_TRUE(overlaps_itself(a) || !repeats) << to_string(a);
    repeating += repeats ? 1 : 0;
  }
  EXPECT_GT(overlapping, 100);
  EXPECT_GT(repeating, 100);
}

}  // namespace
}  // namespace hookline::group
