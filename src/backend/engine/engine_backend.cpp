// The Backend over any transport.
#include <fmt/format.h>

#include <hookline/backend/engine.hpp>
#include <hookline/core/error.hpp>

#include "backend/engine/station.hpp"

namespace hookline {
namespace engine {
namespace {

class EngineBackend final : public Backend {
 public:
  explicit EngineBackend(std::shared_ptr<Station> station) : station_(std::move(station)) {}
  EngineBackend(const EngineBackend&) = delete;
  EngineBackend& operator=(const EngineBackend&) = delete;
  ~EngineBackend() override { station_->close(); }

  std::string name() const override { return station_->name(); }
  int rank() const override { return station_->rank(); }
  int size() const override { return station_->size(); }
  Capabilities capabilities() const override { return {.lanes = kEngineLanes}; }

  WorkPtr start(Collective&& collective, int lane, Milliseconds timeout) override {
    return station_->start(std::move(collective), lane, timeout);
  }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    const Tensor memory = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8);
    return {memory.owner(), memory.mutable_bytes()};
  }
  std::shared_ptr<Backend> subset(const std::vector<int>& ranks, const std::string& name,
                                  Milliseconds timeout) override {
    station_->refuse_in_forked_child("new_group");
    return make_engine_backend(station_->engine().subset(ranks, name, timeout));
  }
  void abort(const std::string& cause) override {
    station_->refuse_in_forked_child("abort");
    station_->fail(std::make_exception_ptr(
        Aborted(fmt::format("rank {} aborted the {} group: {}", rank(), name(), cause), {rank()})));
  }
  void shutdown() override { station_->close(); }
  std::exception_ptr broken() const override { return station_->broken(); }
  std::vector<int> dead_ranks() override { return station_->dead_ranks(); }

 private:
  const std::shared_ptr<Station> station_;
};

}  // namespace
}  // namespace engine

std::shared_ptr<Backend> make_engine_backend(std::shared_ptr<Engine> engine) {
  const auto station = std::make_shared<engine::Station>(std::move(engine));
  station->open();
  return std::make_shared<engine::EngineBackend>(station);
}

}  // namespace hookline
