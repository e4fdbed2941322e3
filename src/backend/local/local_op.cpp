// LocalOp: forwards to its LocalContext.
#include "backend/local/local_op.hpp"

#include "backend/local/local_context.hpp"

namespace hookline::local {

LocalOp::LocalOp(std::shared_ptr<LocalContext> context, Milliseconds timeout, Operation&& operation)
    : OpWork(timeout, std::move(operation)), context_(std::move(context)) {}

void LocalOp::refuse_in_forked_child(std::string_view call) const { context_->refuse_in_forked_child(call); }
void LocalOp::drive() { context_->wait_for(*this); }
void LocalOp::poll() {
  if (!context_->drive()) context_->check_peers();
}
void LocalOp::expedite() { context_->wake_progress_thread(); }
void LocalOp::post_to_worker(Task task) { context_->post_to_worker(std::move(task)); }
void LocalOp::notify() noexcept { context_->notify_self(); }

}  // namespace hookline::local
