// LocalBackend: forwards to a LocalContext and closes it in its destructor.
#include "backend/embedded/embedded_backend.hpp"

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::embedded {
namespace {

class EmbeddedBackend final : public Backend {
 public:
  EmbeddedBackend(std::shared_ptr<Engine> engine, MakeSubset make_subset)
      : engine_(std::move(engine)), make_subset_(std::move(make_subset)) {}
  EmbeddedBackend(const EmbeddedBackend&) = delete;
  EmbeddedBackend& operator=(const EmbeddedBackend&) = delete;
  ~EmbeddedBackend() override { engine_->close(); }

  std::string name() const override { return engine_->name(); }
  int rank() const override { return engine_->memory().rank(); }
  int size() const override { return engine_->memory().size(); }
  Capabilities capabilities() const override { return {.lanes = kLanes, .shared_buffers = true, .readers = true}; }

  WorkPtr start(Collective&& collective, int lane, Milliseconds timeout) override {
    return engine_->start(std::move(collective), lane, timeout);
  }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    engine_->refuse_in_forked_child("empty");
    return engine_->memory().allocate(bytes);
  }
  std::shared_ptr<Backend> subset(const std::vector<int>& ranks, const std::string& name,
                                  Milliseconds timeout) override {
    engine_->refuse_in_forked_child("new_group");
    return make_subset_(ranks, name, timeout);
  }
  void abort(const std::string& cause) override {
    engine_->refuse_in_forked_child("abort");
    engine_->fail(std::make_exception_ptr(
        Aborted(fmt::format("rank {} aborted the {} group: {}", rank(), name(), cause), {rank()})));
  }
  void shutdown() override { engine_->close(); }
  std::exception_ptr broken() const override { return engine_->broken(); }
  std::vector<int> dead_ranks() override { return engine_->dead_ranks(); }

 private:
  const std::shared_ptr<Engine> engine_;
  const MakeSubset make_subset_;
};

}  // namespace

std::shared_ptr<Backend> make_backend(std::unique_ptr<Memory> memory, EngineOptions options, MakeSubset make_subset) {
  auto engine = std::make_shared<Engine>(std::move(memory), std::move(options));
  engine->open();
  return std::make_shared<EmbeddedBackend>(std::move(engine), std::move(make_subset));
}

void check_size(int size, const std::string& backend) {
  if (size < 1 || size > kMaxRanks) {
    throw InvalidArgument(fmt::format("{} group: expected 1 to {} ranks, got {}", backend, kMaxRanks, size));
  }
}

}  // namespace hookline::embedded
