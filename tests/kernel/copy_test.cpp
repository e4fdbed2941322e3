// Tests for copies: every small size, many alignments, cached and streamed, on every target.
#include "kernel/copy.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace hookline::kernel {
namespace {

void expect_copied(Target target, std::size_t bytes, std::size_t to, std::size_t from, StoreMode stores) {
  std::vector<std::byte> source(bytes + from), result(bytes + to + 64, std::byte{0xa5});
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + i / 251);
  copy(result.data() + to, source.data() + from, bytes, stores, target);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const bool inside = i >= to && i < to + bytes;
    if (result[i] != (inside ? source[i - to + from] : std::byte{0xa5})) FAIL() << "byte " << i;
  }
}

TEST(Copy, CopiesEveryByteAndNoOther) {
  for (const Target target : supported_targets()) {
    for (const StoreMode stores : {StoreMode::cached, StoreMode::streaming}) {
      for (std::size_t bytes = 0; bytes <= 1500; bytes += bytes < 700 ? 1 : 67) {
        SCOPED_TRACE(std::string(name(target)) + ", " + std::to_string(bytes) + " bytes");
        expect_copied(target, bytes, bytes * 5 % 64, bytes * 3 % 17, stores);
        if (HasFatalFailure()) return;
      }
    }
  }
  expect_copied(best_target(), kStreamThresholdBytes + 77, 3, 1, StoreMode::automatic);
}

}  // namespace
}  // namespace hookline::kernel
