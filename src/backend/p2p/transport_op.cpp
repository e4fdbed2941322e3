// Forwards virtual functions of OpWork to the P2PContext.
#include "backend/p2p/transport_op.hpp"

#include "backend/p2p/p2p_context.hpp"

namespace hookline::p2p {

TransportOp::TransportOp(std::shared_ptr<P2PContext> context, Milliseconds timeout, Operation&& operation)
    : OpWork(timeout, std::move(operation)), context_(std::move(context)) {}

void TransportOp::refuse_in_forked_child(std::string_view call) const { context_->refuse_in_forked_child(call); }
void TransportOp::post_to_worker(Task task) { context_->post(std::move(task)); }

}  // namespace hookline::p2p
