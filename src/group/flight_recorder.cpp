// The group that records its operations in a FlightRecordRing.
#include <hookline/group/flight_recorder.hpp>

#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/group/decorator.hpp>

#include "group/flight_record_ring.hpp"

namespace hookline {
namespace {

class FlightRecorderGroup final : public GroupDecorator {
 public:
  FlightRecorderGroup(std::shared_ptr<ProcessGroup> group, const FlightRecorderOptions& options)
      : GroupDecorator(std::move(group)), ring_(std::make_shared<group::FlightRecordRing>(*inner(), options)) {}

  WorkPtr run(Operation operation) override {
    const std::uint64_t number = ring_->start(operation);
    WorkPtr work;
    try {
      work = inner()->run(std::move(operation));
    } catch (...) {
      const auto now = Clock::now();
      ring_->finish(number, now, now, std::current_exception());
      throw;
    }
    work->on_complete([ring = ring_, number,
                       work] { ring->finish(number, work->time_started(), work->time_finished(), work->exception()); },
                      Urgency::low);
    return work;
  }

  const group::FlightRecordRing& ring() const noexcept { return *ring_; }

 protected:
  std::shared_ptr<ProcessGroup> decorate(std::shared_ptr<ProcessGroup> group, const std::string& label) override {
    FlightRecorderOptions options = ring_->options();
    options.name = fmt::format("{}.{}", options.name, label);
    return with_flight_recorder(std::move(group), options);
  }

 private:
  const std::shared_ptr<group::FlightRecordRing> ring_;
};

const group::FlightRecordRing& ring_of(const ProcessGroup& group) {
  for (const ProcessGroup* g = &group; g;) {
    if (const auto* const found = dynamic_cast<const FlightRecorderGroup*>(g)) return found->ring();
    const auto* const decorator = dynamic_cast<const GroupDecorator*>(g);
    g = decorator ? decorator->inner().get() : nullptr;
  }
  throw InvalidArgument("the " + group.backend_name() +
                        " group has no flight recorder; wrap it with with_flight_recorder() first");
}

}  // namespace

std::shared_ptr<ProcessGroup> with_flight_recorder(std::shared_ptr<ProcessGroup> group,
                                                   const FlightRecorderOptions& options) {
  return std::make_shared<FlightRecorderGroup>(std::move(group), options);
}

std::string flight_records(const ProcessGroup& group) { return ring_of(group).json("request"); }

std::string dump_flight_records(const ProcessGroup& group, const std::string& path) {
  return ring_of(group).dump(path, "request");
}

}  // namespace hookline
