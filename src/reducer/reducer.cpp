// Reducer: forwards to ReducerImpl.
#include <hookline/reducer/reducer.hpp>

#include <limits>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/optimizer/optimizer.hpp>

#include "group/abort_quietly.hpp"
#include "reducer/reducer_impl.hpp"

namespace hookline {

Reducer::Reducer(std::vector<Parameter> parameters, std::shared_ptr<ProcessGroup> group, const HookOrSpec& hook,
                 ReducerOptions options) {
  HookPtr comm_hook = hook.make(group);
  const std::vector<NamedTensor> buffers = std::exchange(options.buffers, {});
  impl_ = std::make_shared<reducer::ReducerImpl>(std::move(parameters), std::move(group), std::move(comm_hook),
                                                 std::move(options));
  impl_->initialize(buffers);
}

Reducer::~Reducer() = default;

void Reducer::mark_ready(std::size_t parameter) { impl_->mark_ready(parameter); }
void Reducer::mark_ready(std::size_t parameter, const Tensor& gradient) { impl_->mark_ready(parameter, gradient); }
void Reducer::mark_ready(std::size_t parameter, const SparseGradient& gradient) {
  impl_->mark_ready(parameter, gradient);
}
void Reducer::mark_unused(std::size_t parameter, const Tensor& gradient) { impl_->mark_unused(parameter, gradient); }
void Reducer::mark_unused(std::size_t parameter, const SparseGradient& gradient) {
  impl_->mark_unused(parameter, gradient);
}
void Reducer::finalize() { impl_->finalize(); }
void Reducer::discard_step() { impl_->discard_step(); }

Tensor Reducer::gradient(std::size_t parameter) { return impl_->gradient(parameter); }
void Reducer::copy_gradient(std::size_t parameter, const Tensor& destination) const {
  impl_->copy_gradient(parameter, destination);
}
SparseGradient Reducer::sparse_gradient(std::size_t parameter) const { return impl_->sparse_gradient(parameter); }
std::vector<NamedGradient> Reducer::reduced_gradients() const { return impl_->reduced_gradients(); }
std::size_t Reducer::index_of(std::string_view name) const { return impl_->index_of(name); }
const std::vector<Parameter>& Reducer::parameters() const noexcept { return impl_->parameters; }

std::vector<ParameterIndices> Reducer::buckets() const { return impl_->current_plan(); }
const std::shared_ptr<ProcessGroup>& Reducer::group() const noexcept { return impl_->group; }

void Reducer::replace_hook(const HookOrSpec& hook) {
  impl_->check_between_steps("replacing the hook");  // before a spec whose hook creates groups
  impl_->set_hook(hook.make(impl_->group));
}
HookPtr Reducer::hook() const { return impl_->hook; }

Reducer::NoSync::NoSync(std::shared_ptr<reducer::ReducerImpl> impl)
    : impl_(std::move(impl)), previous_(std::exchange(impl_->no_sync, true)) {}
Reducer::NoSync::~NoSync() { impl_->no_sync = previous_; }
Reducer::NoSync Reducer::no_sync() {
  impl_->check_between_steps("no_sync");
  return NoSync(impl_);
}

void Reducer::set_weight(double weight) { impl_->set_weight(weight); }

void Reducer::set_step_id(std::optional<std::int64_t> id) {
  constexpr std::int64_t kMaxStepId = std::numeric_limits<std::uint32_t>::max();
  if (id && (*id < 0 || *id > kMaxStepId)) {
    throw InvalidArgument(fmt::format("set_step_id on rank {} of {}: expected a number from 0 to {}, got {}",
                                      impl_->group->rank(), impl_->group->size(), kMaxStepId, *id));
  }
  impl_->step_id = id ? std::optional(static_cast<std::uint32_t>(*id)) : std::nullopt;
}
std::optional<std::int64_t> Reducer::step_id() const { return impl_->step_id; }

void Reducer::join(const std::function<void()>& body, const JoinOptions& options) {
  begin_join(options);
  try {
    body();
  } catch (...) {
    group::abort_quietly(*impl_->group, "a rank failed inside join: " + describe(std::current_exception()));
    throw;
  }
  end_join();
}

void Reducer::begin_join(const JoinOptions& options) { impl_->begin_join(options); }
void Reducer::end_join() { impl_->end_join(); }

StepStats Reducer::stats() const { return impl_->stats; }
std::exception_ptr Reducer::failure() const { return impl_->failure(); }

}  // namespace hookline
