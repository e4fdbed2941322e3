// Forwards the hooks of OpWork to the P2PContext.
#include "backend/engine/operation.hpp"

#include "backend/engine/station.hpp"

namespace hookline::engine {

Operation::Operation(std::shared_ptr<Station> station, Milliseconds timeout, Collective&& collective)
    : DrivenWork(timeout, std::move(collective)), station_(std::move(station)) {}

void Operation::refuse_in_forked_child(std::string_view call) const { station_->refuse_in_forked_child(call); }
void Operation::hand_over(Task task) { station_->post(std::move(task)); }

}  // namespace hookline::engine
