// The group that records its operations in a FlightRecordRing.
#include <hookline/group/recorded.hpp>

#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/group/decorator.hpp>

#include "group/record_ring.hpp"

namespace hookline {
namespace {

class RecordedGroup final : public GroupDecorator {
 public:
  RecordedGroup(std::shared_ptr<ProcessGroup> group, const RecordOptions& options)
      : GroupDecorator(std::move(group)), ring_(std::make_shared<group::RecordRing>(*inner(), options)) {}

  WorkPtr run(Collective collective) override {
    const std::uint64_t number = ring_->start(collective);
    WorkPtr work;
    try {
      work = inner()->run(std::move(collective));
    } catch (...) {
      const auto now = Clock::now();
      ring_->end(number, now, now, std::current_exception());
      throw;
    }
    work->when_over([ring = ring_, number,
                     work] { ring->end(number, work->time_started(), work->time_finished(), work->exception()); },
                    false);
    return work;
  }

  const group::RecordRing& ring() const noexcept { return *ring_; }

 protected:
  std::shared_ptr<ProcessGroup> decorate(std::shared_ptr<ProcessGroup> group, const std::string& label) override {
    RecordOptions options = ring_->options();
    options.name = fmt::format("{}.{}", options.name, label);
    return recorded(std::move(group), options);
  }

 private:
  const std::shared_ptr<group::RecordRing> ring_;
};

const group::RecordRing& ring_of(const ProcessGroup& group) {
  for (const ProcessGroup* g = &group; g;) {
    if (const auto* const found = dynamic_cast<const RecordedGroup*>(g)) return found->ring();
    const auto* const around = dynamic_cast<const GroupDecorator*>(g);
    g = around ? around->inner().get() : nullptr;
  }
  throw InvalidArgument("the " + group.backend_name() +
                        " group has no flight recorder; wrap it with with_flight_recorder() first");
}

}  // namespace

std::shared_ptr<ProcessGroup> recorded(std::shared_ptr<ProcessGroup> group, const RecordOptions& options) {
  return std::make_shared<RecordedGroup>(std::move(group), options);
}

std::string records(const ProcessGroup& group) { return ring_of(group).json("request"); }

std::string dump_records(const ProcessGroup& group, const std::string& path) {
  return ring_of(group).dump(path, "request");
}

}  // namespace hookline
