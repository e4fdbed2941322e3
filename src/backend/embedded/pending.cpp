// LocalOp: forwards to its LocalContext.
#include "backend/embedded/pending.hpp"

#include "backend/embedded/engine.hpp"

namespace hookline::embedded {

Pending::Pending(std::shared_ptr<Engine> engine, Milliseconds timeout, Collective&& collective)
    : DrivenWork(timeout, std::move(collective)), engine_(std::move(engine)) {}

void Pending::refuse_in_forked_child(std::string_view call) const { engine_->refuse_in_forked_child(call); }
void Pending::drive() { engine_->wait_for(*this); }
void Pending::look() {
  if (!engine_->drive()) engine_->look_around();
}
void Pending::hurry() { engine_->wake_progress_thread(); }
void Pending::hand_over(Task task) { engine_->post(std::move(task)); }
void Pending::announce() noexcept { engine_->announce(); }

}  // namespace hookline::embedded
