// The test fixture of the process group contract: tensors in every kind of memory, and a sample of the test matrix.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "contract/group_reference.hpp"
#include "harness/spawn.hpp"

namespace hookline::testing {

inline constexpr std::int64_t kInlineBytes = 8192;  // bytes; the protocol changes at this size
inline constexpr std::int64_t kChunkBytes = 256 * 1024;

/// Returns element counts around the sizes at which the protocol changes.
inline std::vector<std::int64_t> counts(DType dtype) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  return {0, 1, 7, kInlineBytes / size - 1, kInlineBytes / size, kInlineBytes / size + 1, kChunkBytes / size + 3};
}

inline const std::vector<DType> kDtypes = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8,
                                           DType::u8,  DType::i16, DType::i32, DType::i64,  DType::boolean};

enum class Layout { plain, shared, strided };

/// Creates a tensor of `count` elements in the given kind of memory.
inline Tensor make_tensor(ProcessGroup& group, std::int64_t count, DType dtype, Layout layout) {
  switch (layout) {
    case Layout::plain: return Tensor::empty({count}, dtype);
    case Layout::shared: return group.empty({count}, dtype);
    case Layout::strided: break;
  }
  return Tensor::zeros({count, 2}, dtype).slice(1, 1, 2);
}

/// Returns the rows [index * each, (index + 1) * each) of a tensor.
inline Tensor slice_of(const Tensor& t, int index, std::int64_t each) {
  return t.slice(0, index * each, (index + 1) * each);
}

inline void fill(const Tensor& t, int rank, int part = 0) {
  fill_with(t, [&](std::int64_t i) { return element(rank, i, part); });
}

inline void expect(const Tensor& t, const Tensor& expected, const std::string& what) {
  const std::int64_t at = first_difference(t, expected);
  if (at >= 0) throw std::runtime_error(what + ": wrong from element " + std::to_string(at) + " of " + to_string(t));
}

/// True if tests run the whole matrix: HOOKLINE_MATRIX=full. A number in HOOKLINE_MATRIX multiplies the sample size.
inline bool full_matrix() {
  const char* const matrix = std::getenv("HOOKLINE_MATRIX");
  return matrix && std::string_view(matrix) == "full";
}

inline int sample_size(int default_size) {
  const char* const matrix = std::getenv("HOOKLINE_MATRIX");
  return matrix ? std::max(1, static_cast<int>(default_size * std::strtod(matrix, nullptr))) : default_size;
}

/// Returns HOOKLINE_TEST_SEED, set if ranks are separate programs that must use the same seed; else a random seed.
inline unsigned sample_seed() {
  const char* const seed_text = std::getenv("HOOKLINE_TEST_SEED");
  return seed_text ? static_cast<unsigned>(std::strtoul(seed_text, nullptr, 10)) : std::random_device{}();
}

class GroupContract : public ::testing::TestWithParam<GroupFixture> {
 protected:
  // Runs a sample of the matrix: ranks, dtypes, counts and layouts chosen by a seed that a failure prints.
  template <class F>
  void sample(int rounds, F body) {
    const unsigned seed = sample_seed();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto pick = [&](const auto& from) { return from[random() % from.size()]; };
    for (const int ranks : {1, 2, 3, 4, 7}) {
      struct Case {
        DType dtype;
        std::int64_t count;
        Layout layout;
        int root;
      };
      const std::vector<Layout> layouts = {Layout::plain, Layout::shared, Layout::strided};
      std::vector<Case> cases;
      const auto add = [&](DType dtype, std::int64_t count, Layout layout) {
        cases.push_back({dtype, count, layout, static_cast<int>(random() % static_cast<unsigned>(ranks))});
      };
      if (full_matrix()) {
        for (const DType dtype : kDtypes) {
          for (const std::int64_t count : counts(dtype)) {
            for (const Layout layout : layouts) add(dtype, count, layout);
          }
        }
      } else {
        for (int i = 0; i < sample_size(rounds); ++i) {
          const DType dtype = pick(kDtypes);
          const std::int64_t count = pick(counts(dtype));
          add(dtype, count, pick(layouts));
        }
      }
      EXPECT_NO_THROW(GetParam().spawn(ranks,
                                       [&](ProcessGroup& group) {
                                         for (const Case& c : cases) body(group, c.dtype, c.count, c.layout, c.root);
                                       }))
          << "seed " << seed;
    }
  }
};

}  // namespace hookline::testing
