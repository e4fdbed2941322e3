// LocalBackend: forwards to a LocalContext and closes it in its destructor.
#include "backend/local/local_backend.hpp"

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::local {
namespace {

class LocalBackend final : public Backend {
 public:
  LocalBackend(std::shared_ptr<LocalContext> context, MakeSubgroup make_subgroup)
      : context_(std::move(context)), make_subgroup_(std::move(make_subgroup)) {}
  LocalBackend(const LocalBackend&) = delete;
  LocalBackend& operator=(const LocalBackend&) = delete;
  ~LocalBackend() override { context_->close(); }

  std::string name() const override { return context_->name(); }
  int rank() const override { return context_->memory().rank(); }
  int size() const override { return context_->memory().size(); }
  Capabilities capabilities() const override {
    return {.lanes = kNumLanes, .shared_buffers = true, .zero_copy_reads = true};
  }

  WorkPtr start(Operation&& operation, int lane, Milliseconds timeout) override {
    return context_->start(std::move(operation), lane, timeout);
  }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    context_->refuse_in_forked_child("empty");
    return context_->memory().allocate(bytes);
  }
  std::shared_ptr<Backend> new_subgroup(const std::vector<int>& ranks, const std::string& name,
                                        Milliseconds timeout) override {
    context_->refuse_in_forked_child("new_group");
    return make_subgroup_(ranks, name, timeout);
  }
  void abort(const std::string& cause) override {
    context_->refuse_in_forked_child("abort");
    context_->fail(std::make_exception_ptr(
        Aborted(fmt::format("rank {} aborted the {} group: {}", rank(), name(), cause), {rank()})));
  }
  void shutdown() override { context_->close(); }
  std::exception_ptr error() const override { return context_->error(); }
  std::vector<int> dead_ranks() override { return context_->dead_ranks(); }

 private:
  const std::shared_ptr<LocalContext> context_;
  const MakeSubgroup make_subgroup_;
};

}  // namespace

std::shared_ptr<Backend> make_local_backend(std::unique_ptr<Memory> memory, LocalContextOptions options,
                                            MakeSubgroup make_subgroup) {
  auto context = std::make_shared<LocalContext>(std::move(memory), std::move(options));
  context->open();
  return std::make_shared<LocalBackend>(std::move(context), std::move(make_subgroup));
}

void check_size(int size, const std::string& backend) {
  if (size < 1 || size > kMaxRanks) {
    throw InvalidArgument(fmt::format("{} group: expected 1 to {} ranks, got {}", backend, kMaxRanks, size));
  }
}

}  // namespace hookline::local
