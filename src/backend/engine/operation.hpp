// The base class of operations over a transport.
#pragma once

#include <memory>

#include "backend/driven_work.hpp"

namespace hookline::engine {

class Station;

/// An OpWork that belongs to a P2PContext.
class Operation : public backend::DrivenWork {
 public:
  Operation(std::shared_ptr<Station> station, Milliseconds timeout, Collective&& collective);

 protected:
  Station& station() const noexcept { return *station_; }

 private:
  void refuse_in_forked_child(std::string_view call) const override;
  void look() override { hurry(); }
  void hurry() override = 0;
  void hand_over(Task task) override;

  const std::shared_ptr<Station> station_;
};

}  // namespace hookline::engine
