// The reducer as users see it, in front of its insides.
#include <hookline/reducer/reducer.hpp>

#include <limits>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "group/abort_quietly.hpp"
#include "reducer/core.hpp"

namespace hookline {

Reducer::Reducer(std::vector<Parameter> parameters, std::shared_ptr<ProcessGroup> group, HookPtr hook,
                 ReducerOptions options) {
  const std::vector<NamedTensor> buffers = std::exchange(options.buffers, {});
  core_ = std::make_shared<reducer::Core>(std::move(parameters), std::move(group), std::move(hook), std::move(options));
  core_->start(buffers);
}

Reducer::~Reducer() = default;

void Reducer::mark_ready(std::size_t parameter) { core_->mark(parameter); }
void Reducer::mark_ready(std::size_t parameter, const Tensor& gradient) { core_->mark(parameter, gradient); }
void Reducer::mark_ready(std::size_t parameter, const SparseGradient& gradient) { core_->mark(parameter, gradient); }
void Reducer::mark_unused(std::size_t parameter, const Tensor& gradient) { core_->mark_unused(parameter, gradient); }
void Reducer::mark_unused(std::size_t parameter, const SparseGradient& gradient) {
  core_->mark_unused(parameter, gradient);
}
void Reducer::finalize() { core_->finalize(); }
void Reducer::drop_step() { core_->drop_step(); }

Tensor Reducer::gradient(std::size_t parameter) { return core_->gradient(parameter); }
void Reducer::copy_gradient(std::size_t parameter, const Tensor& to) const { core_->copy_gradient(parameter, to); }
SparseGradient Reducer::sparse_gradient(std::size_t parameter) const { return core_->sparse_gradient(parameter); }
std::size_t Reducer::index_of(std::string_view name) const { return core_->index_of(name); }
const std::vector<Parameter>& Reducer::parameters() const noexcept { return core_->parameters; }

std::vector<BucketMembers> Reducer::buckets() const { return core_->current_plan(); }
const std::shared_ptr<ProcessGroup>& Reducer::group() const noexcept { return core_->group; }

void Reducer::replace_hook(HookPtr hook) { core_->set_hook(std::move(hook)); }
HookPtr Reducer::hook() const { return core_->hook; }

Reducer::NoSync::NoSync(std::shared_ptr<reducer::Core> core)
    : core_(std::move(core)), before_(std::exchange(core_->no_sync, true)) {}
Reducer::NoSync::~NoSync() { core_->no_sync = before_; }
Reducer::NoSync Reducer::no_sync() {
  core_->check_between_steps("no_sync");
  return NoSync(core_);
}

void Reducer::set_weight(double weight) { core_->set_weight(weight); }

void Reducer::set_step_id(std::optional<std::int64_t> id) {
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (id && (*id < 0 || *id > kMost)) {
    throw InvalidArgument(fmt::format("set_step_id on rank {} of {}: expected a number from 0 to {}, got {}",
                                      core_->group->rank(), core_->group->size(), kMost, *id));
  }
  core_->step_id = id ? std::optional(static_cast<std::uint32_t>(*id)) : std::nullopt;
}
std::optional<std::int64_t> Reducer::step_id() const { return core_->step_id; }

void Reducer::join(const std::function<void()>& body, const JoinOptions& options) {
  begin_join(options);
  try {
    body();
  } catch (...) {
    group::abort_quietly(*core_->group, "a rank failed inside join: " + describe(std::current_exception()));
    throw;
  }
  end_join();
}

void Reducer::begin_join(const JoinOptions& options) { core_->begin_join(options); }
void Reducer::end_join() { core_->end_join(); }

StepStats Reducer::stats() const { return core_->stats; }
std::exception_ptr Reducer::failure() const { return core_->failure(); }

}  // namespace hookline
