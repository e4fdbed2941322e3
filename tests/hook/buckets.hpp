// Helpers for hook tests: buckets, and hooks run outside a reducer.
#pragma once

#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <hookline/backend/threads.hpp>
#include <hookline/hook/comm_hook.hpp>

#include "harness/spawn.hpp"

namespace hookline::testing {

using Layout = std::shared_ptr<const BucketLayout>;

inline Layout layout(std::vector<Dims> sizes, std::vector<std::string> names) {
  return std::make_shared<const BucketLayout>(layout_of(std::move(sizes), {}, std::move(names)));
}

/// Returns a bucket whose element i is value(i).
template <class Value>
GradBucket bucket_with(const Layout& layout, Value value, std::size_t index = 0, std::size_t count = 1) {
  const auto numel = static_cast<std::int64_t>(layout->offsets.back() + layout->lengths.back());
  const Tensor t = Tensor::empty({numel});
  for (std::int64_t i = 0; i < numel; ++i) t.data<float>()[i] = static_cast<float>(value(i));
  return {index, count, t, layout};
}

inline Tensor run(const HookPtr& hook, GradBucket bucket) {
  return run_and_parse(hook, bucket).wait(std::chrono::seconds(30)), bucket.buffer();
}

inline std::shared_ptr<ProcessGroup> single_rank_group() {
  return make_group(make_threads_backends(1)[0], std::chrono::seconds(10));
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.bytes(), b.bytes(), a.nbytes()) == 0;
}

}  // namespace hookline::testing
