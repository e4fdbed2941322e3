// The base class of operations over a transport.
#pragma once

#include <memory>

#include "backend/op_work.hpp"

namespace hookline::p2p {

class P2PContext;

/// An OpWork that belongs to a P2PContext.
class TransportOp : public backend::OpWork {
 public:
  TransportOp(std::shared_ptr<P2PContext> context, Milliseconds timeout, Operation&& operation);

 protected:
  P2PContext& context() const noexcept { return *context_; }

 private:
  void refuse_in_forked_child(std::string_view call) const override;
  void poll() override { expedite(); }
  void expedite() override = 0;
  void post_to_worker(Task task) override;

  const std::shared_ptr<P2PContext> context_;
};

}  // namespace hookline::p2p
