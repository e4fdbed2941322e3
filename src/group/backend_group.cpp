// The process group on a backend: checks each operation and starts it in the current lane.
#include <atomic>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/group/arguments.hpp>
#include <hookline/group/coalescing.hpp>
#include <hookline/group/completion_hooks.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/store/prefix_store.hpp>

#include "backend/bootstrap.hpp"
#include "group/group_origin.hpp"
#include "group/wire_bytes.hpp"

namespace hookline {
namespace {

class BackendGroup final : public ProcessGroup {
 public:
  BackendGroup(std::shared_ptr<Backend> backend, Milliseconds timeout, group::GroupOrigin origin)
      : backend_(std::move(backend)),
        origin_(std::move(origin)),
        rank_(backend_->rank()),
        size_(backend_->size()),
        lanes_(backend_->capabilities().lanes),
        timeout_(timeout) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string backend_name() const override { return backend_->name(); }
  Capabilities capabilities() const override { return backend_->capabilities(); }

  WorkPtr run(Operation operation) override {
    check_arguments(operation, rank_, size_);
    if (operation.op_tag == 0) operation.op_tag = current_context().op_tag;
    if (observers_.load(std::memory_order_relaxed) == 0) return start(std::move(operation));
    return start_observed(std::move(operation));
  }

  void register_on_completion_hook(OnCompletionHook hook, std::shared_ptr<Executor> executor) override {
    hooks_.add(std::move(hook), std::move(executor));
    observers_.fetch_add(1, std::memory_order_relaxed);
  }
  void wait_for_hooks(std::optional<Milliseconds> timeout) override { hooks_.wait(timeout.value_or(this->timeout())); }

  void start_coalescing() override {
    coalescing_.start();
    observers_.fetch_add(1, std::memory_order_relaxed);
  }
  WorkPtr end_coalescing() override {
    WorkPtr all = coalescing_.end();
    observers_.fetch_sub(1, std::memory_order_relaxed);
    return all;
  }
  void coalesce(const WorkPtr& work) override { coalescing_.add(work); }

  Tensor empty(const Dims& shape, DType dtype) override {
    std::int64_t numel = 1;
    for (const std::int64_t extent : shape) {
      if (extent < 0 || __builtin_mul_overflow(numel, extent, &numel)) {
        throw InvalidArgument(
            fmt::format("empty: expected non-negative extents with a product below 2^63, got {}", to_string(shape)));
      }
    }
    const std::shared_ptr<void> memory = backend_->allocate(static_cast<std::size_t>(numel) * size_of(dtype));
    return Tensor::wrap(memory.get(), shape, dtype, {.owner = memory});
  }

  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks) override {
    std::vector<bool> seen(static_cast<std::size_t>(size_));
    bool member = false;
    for (const int r : ranks) {
      if (r < 0 || r >= size_ || seen[static_cast<std::size_t>(r)]) {
        throw InvalidArgument(
            fmt::format("new_group of ranks [{}] on rank {} of {}: {} is out of range or repeated: expected distinct "
                        "ranks from 0 to {}",
                        fmt::join(ranks, ", "), rank_, size_, r, size_ - 1));
      }
      seen[static_cast<std::size_t>(r)] = true;
      member = member || r == rank_;
    }
    const std::uint64_t number = num_subgroups_.fetch_add(1) + 1;
    if (!member) return nullptr;
    const std::string name = fmt::format("group{}", number);
    group::GroupOrigin origin{.store = nullptr, .global_ranks = to_global_ranks(ranks)};
    if (origin_.store) origin.store = std::make_shared<PrefixStore>(name, origin_.store);
    backend::Bootstrap bootstrap(
        {.operation = fmt::format("new_group of ranks [{}]", fmt::join(origin.global_ranks, ", ")),
         .rank = to_global_ranks({rank_})[0],
         .size = static_cast<int>(ranks.size()),
         .members = origin.global_ranks,
         .store = origin.store ? std::make_shared<PrefixStore>("bootstrap", origin.store) : nullptr,
         .dead_ranks = [this] { return to_global_ranks(backend_->dead_ranks()); }});
    return bootstrap.run(
        [&] { return group::make_group(backend_->new_subgroup(ranks, name, timeout()), timeout(), origin); });
  }

  Milliseconds timeout() const override { return timeout_.load(std::memory_order_relaxed); }
  void set_timeout(Milliseconds timeout) override {
    if (timeout <= Milliseconds(0))
      throw InvalidArgument(fmt::format("set_timeout: expected a timeout above 0 ms, got {} ms", timeout.count()));
    timeout_.store(timeout, std::memory_order_relaxed);
  }
  std::uint64_t sequence_number() const override { return sequence_.load(std::memory_order_relaxed); }
  void abort(const std::string& cause) override { backend_->abort(cause); }
  void shutdown() override { backend_->shutdown(); }

 private:
  std::vector<int> to_global_ranks(std::vector<int> ranks) const {
    if (!origin_.global_ranks.empty()) {
      for (int& rank : ranks) rank = origin_.global_ranks[static_cast<std::size_t>(rank)];
    }
    return ranks;
  }

  WorkPtr start_observed(Operation&& operation) {
    const WorkInfo info = describe_work(operation);
    WorkPtr work = start(std::move(operation));
    if (hooks_.any()) work = hooks_.attach(info, work);
    if (coalescing_.active()) coalescing_.add(work);
    return work;
  }

  WorkPtr start(Operation&& operation) {
    const Milliseconds timeout = operation.timeout.value_or(this->timeout());
    const CallContext& context = current_context();
    if (context.lane < 0 || context.lane >= lanes_) {
      throw InvalidArgument(fmt::format("{} on rank {} of {}: lane is out of range: expected 0 to {}, got {}",
                                        name(operation.type), rank_, size_, lanes_ - 1, context.lane));
    }
    if (context.bytes_sent && !operation.inter_host_reducer)  // an inter_host_reducer counts its own bytes
      context.bytes_sent->fetch_add(group::wire_bytes(operation, size_), std::memory_order_relaxed);
    operation.sequence_number = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
    return backend_->start(std::move(operation), context.lane, timeout);
  }

  const std::shared_ptr<Backend> backend_;
  const group::GroupOrigin origin_;
  const int rank_;
  const int size_;
  const int lanes_;
  std::atomic<Milliseconds> timeout_;
  std::atomic<std::uint64_t> sequence_ = 0;
  std::atomic<std::uint64_t> num_subgroups_ = 0;
  std::atomic<int> observers_ = 0;  ///< completion hooks, plus one while coalescing; 0 selects the fast path
  CompletionHooks hooks_;
  Coalescing coalescing_;
};

}  // namespace

std::shared_ptr<ProcessGroup> make_group(std::shared_ptr<Backend> backend, Milliseconds timeout) {
  return group::make_group(std::move(backend), timeout, {});
}

namespace group {

std::shared_ptr<ProcessGroup> make_group(std::shared_ptr<Backend> backend, Milliseconds timeout, GroupOrigin origin) {
  return std::make_shared<BackendGroup>(std::move(backend), timeout, std::move(origin));
}

}  // namespace group

}  // namespace hookline
