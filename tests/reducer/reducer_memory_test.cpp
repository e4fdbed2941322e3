// Tests the memory of a reducer: one copy of the gradients, in shared memory for shm groups.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <new>
#include <set>

#include <gtest/gtest.h>

#include <hookline/group/decorator.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/reducer/reducer.hpp>

#include "harness/spawn.hpp"

namespace {

/// Current and peak memory of the process: the heap, and shared memory counted by CountingGroup.
std::atomic<std::int64_t> in_use = 0;
std::atomic<std::int64_t> peak = 0;

void count(std::int64_t bytes) {
  const std::int64_t now = in_use.fetch_add(bytes) + bytes;
  for (std::int64_t before = peak; before < now && !peak.compare_exchange_weak(before, now);) {
  }
}

void* counted_alloc(std::size_t bytes, std::size_t alignment) noexcept {
  void* const memory = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (memory) count(static_cast<std::int64_t>(malloc_usable_size(memory)));
  return memory;
}

void* counted_alloc_or_throw(std::size_t bytes, std::size_t alignment) {
  void* const memory = counted_alloc(bytes, alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}

void counted_free(void* memory) noexcept {
  if (memory) count(-static_cast<std::int64_t>(malloc_usable_size(memory)));
  std::free(memory);
}

constexpr std::size_t kDefaultAlignment = alignof(std::max_align_t);

}  // namespace

// Replaces all forms of new and delete: a sanitizer reports a mismatch if one of them is its own.
// NOLINTBEGIN(misc-definitions-in-headers, cppcoreguidelines-no-malloc)
void* operator new(std::size_t n) { return counted_alloc_or_throw(n, kDefaultAlignment); }
void* operator new[](std::size_t n) { return counted_alloc_or_throw(n, kDefaultAlignment); }
void* operator new(std::size_t n, std::align_val_t a) { return counted_alloc_or_throw(n, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t n, std::align_val_t a) {
  return counted_alloc_or_throw(n, static_cast<std::size_t>(a));
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return counted_alloc(n, kDefaultAlignment); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return counted_alloc(n, kDefaultAlignment); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return counted_alloc(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return counted_alloc(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { counted_free(p); }
void operator delete[](void* p) noexcept { counted_free(p); }
void operator delete(void* p, std::size_t) noexcept { counted_free(p); }
void operator delete[](void* p, std::size_t) noexcept { counted_free(p); }
void operator delete(void* p, std::align_val_t) noexcept { counted_free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { counted_free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { counted_free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { counted_free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { counted_free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { counted_free(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { counted_free(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { counted_free(p); }
// NOLINTEND(misc-definitions-in-headers, cppcoreguidelines-no-malloc)

namespace hookline::testing {
namespace {

/// Counts the shared memory allocated through it until it is released.
class CountingGroup final : public GroupDecorator {
 public:
  using GroupDecorator::GroupDecorator;
  Tensor empty(const Dims& shape, DType dtype) override {
    const Tensor inner = GroupDecorator::empty(shape, dtype);
    const auto bytes = static_cast<std::int64_t>(inner.nbytes());
    count(bytes);
    std::shared_ptr<void> counted(inner.mutable_bytes(), [kept = inner, bytes](void*) { count(-bytes); });
    return Tensor::wrap(inner.mutable_bytes(), shape, dtype, {.owner = counted});
  }
};

std::vector<Parameter> large_and_small() {
  std::vector<Parameter> parameters;
  parameters.reserve(66);
  for (int p = 0; p < 6; ++p) parameters.push_back({"large" + std::to_string(p), Tensor::zeros({1000, 500})});
  for (int p = 0; p < 60; ++p) parameters.push_back({"small" + std::to_string(p), Tensor::zeros({10'000})});
  return parameters;
}

constexpr std::int64_t kSlack = 1 << 20;  // names, states, operations

/// Keeps the last bucket of a step alive, as the thread that completes a hook may do.
Future<Tensor> mean(ProcessGroup& group, GradBucket& bucket) {
  static Tensor retained;
  if (bucket.is_last()) retained = bucket.buffer();
  const AllreduceOptions options{.op = ReduceOp::avg};
  co_await group.allreduce(bucket.buffer(), options);
  co_return bucket.buffer();
}

/// Runs `body` and expects that its peak memory is at most `bytes`.
void expect_at_most(std::int64_t bytes, const std::function<void()>& body) {
  const std::int64_t before = in_use;
  peak = before;
  body();
  EXPECT_LE(peak - before, bytes + kSlack);
  EXPECT_GE(peak - before, bytes / 2) << "memory is not counted";
}

class ReducerMemory : public ::testing::TestWithParam<bool> {};

TEST_P(ReducerMemory, IsOneCopyOfTheGradients) {
  shm_fixture().spawn(2, [](ProcessGroup& inner) {
    const auto group = std::make_shared<CountingGroup>(inner.shared_from_this());
    const std::vector<Parameter> parameters = large_and_small();
    std::int64_t size = 0;
    for (const Parameter& p : parameters) size += static_cast<std::int64_t>(p.tensor.nbytes());
    const bool views = GetParam();
    std::vector<Tensor> gradients;
    if (!views) {
      for (const Parameter& p : parameters) gradients.push_back(Tensor::zeros(p.tensor.shape()));
    }
    // With views the buckets are the only copy of the gradients.
    expect_at_most(size, [&] {
      Reducer reducer(parameters, group, make_hook(mean, group));
      if (views) {
        for (std::size_t p = 0; p < parameters.size(); ++p) gradients.push_back(reducer.gradient(p));
      }
      const auto before = reducer.buckets();
      const auto step = [&] {
        for (std::size_t p = 0; p < parameters.size(); ++p) {
          if (views) reducer.mark_ready(p);
          else reducer.mark_ready(p, gradients[p]);
        }
        reducer.finalize();
      };
      for (int s = 0; s < 3; ++s) step();
      EXPECT_EQ(reducer.buckets() == before, views) << "rebuilt in the order of the marks";
      {
        const auto guard = reducer.no_sync();
        step();
      }
      reducer.replace_hook(nullptr);
      reducer.join([&] {
        for (int s = 0; s <= inner.rank(); ++s) step();
      });
      gradients.clear();
    });
  });
}

INSTANTIATE_TEST_SUITE_P(With, ReducerMemory, ::testing::Values(false, true),
                         [](const auto& test) { return test.param ? "views" : "copies"; });

TEST(ReducerMemory, IsZeroForParametersOutsideBuckets) {
  shm_fixture().spawn(1, [](ProcessGroup& inner) {
    const auto group = std::make_shared<CountingGroup>(inner.shared_from_this());
    std::vector<Parameter> parameters = large_and_small();
    std::int64_t size = 0;
    for (const Parameter& p : parameters) size += static_cast<std::int64_t>(p.tensor.nbytes());
    parameters.push_back({.name = "rows", .tensor = Tensor::zeros({1000, 500}), .sparse = true});
    parameters.push_back({.name = "ignored", .tensor = Tensor::zeros({1000, 500}), .ignored = true});
    expect_at_most(size, [&] { Reducer reducer(parameters, group, make_hook(mean, group)); });
  });
}

/// Returns the name of the mapping that contains an address.
std::string mapping_of(const void* address) {
  std::ifstream maps("/proc/self/maps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  for (std::string line; std::getline(maps, line);) {
    std::size_t dash = 0;
    const std::uintptr_t begin = std::stoull(line, &dash, 16);
    const std::uintptr_t end = std::stoull(line.substr(dash + 1), nullptr, 16);
    if (begin <= wanted && wanted < end) return line.substr(std::min(line.find('/'), line.size()));
  }
  return "nowhere";
}

TEST(ReducerMemory, BuffersOfShmGroupsAreInSharedMemory) {
  shm_fixture().spawn(2, [](ProcessGroup& group) {
    std::vector<Parameter> parameters = {{"a", Tensor::zeros({5})}, {"b", Tensor::zeros({300, 300})}};
    parameters.push_back({"rows", Tensor::zeros({1000, 4}), true});
    std::mutex mutex;
    std::set<const void*> buffers;  // guarded by mutex: hooks run during other marks
    Reducer reducer(parameters, group.shared_from_this(), make_hook([&](GradBucket& bucket) {
                      const std::lock_guard lock(mutex);
                      buffers.insert(bucket.buffer().bytes());
                      return Future<Tensor>::ready(bucket.buffer());
                    }),
                    {.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1}});
    for (int s = 0; s < 2; ++s) {
      std::vector<std::int64_t> rows = {3, 5};
      reducer.mark_ready("a", Tensor::zeros({5}));  // not in the initial bucket order
      reducer.mark_ready("b", Tensor::zeros({300, 300}));
      reducer.mark_ready("rows", SparseGradient{Tensor::borrow(rows), Tensor::zeros({2, 4})});
      reducer.finalize();
      const std::lock_guard lock(mutex);
      for (const void* buffer : buffers) EXPECT_EQ(mapping_of(buffer), "/memfd:hookline (deleted)");
      buffers.clear();
    }
    EXPECT_EQ(mapping_of(reducer.gradient("a").bytes()), "/memfd:hookline (deleted)");
    EXPECT_NE(mapping_of(parameters[0].tensor.bytes()), "/memfd:hookline (deleted)") << "ordinary memory";
  });
}

}  // namespace
}  // namespace hookline::testing
