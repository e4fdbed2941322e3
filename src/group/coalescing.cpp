// CoalescedWork: one Work for several.
#include <hookline/group/coalescing.hpp>

#include <algorithm>
#include <utility>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

class CoalescedWork final : public Work {
 public:
  explicit CoalescedWork(std::vector<WorkPtr> works) : works_(std::move(works)) {}

  /// Waits for all works even if one failed, so that no tensor is touched afterwards.
  void wait(std::optional<Milliseconds> timeout) override {
    const auto deadline = timeout ? deadline_after(*timeout) : Clock::time_point::max();
    std::exception_ptr error;
    for (const WorkPtr& work : works_) {
      try {
        work->wait(timeout ? std::optional(time_left(deadline)) : std::nullopt);
      } catch (...) {
        if (!work->is_completed()) throw;  // interrupted or timed out
        if (!error) error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
  }
  Future<std::vector<Tensor>> get_future() override {
    std::vector<Future<std::vector<Tensor>>> futures;
    futures.reserve(works_.size());
    for (const WorkPtr& work : works_) futures.push_back(work->get_future());
    return when_all(std::move(futures)).then([](const Future<std::vector<std::vector<Tensor>>>& all) {
      std::vector<Tensor> outputs;
      for (const auto& part : all.value()) outputs.insert(outputs.end(), part.begin(), part.end());
      return outputs;
    });
  }
  bool is_completed() override {
    return std::all_of(works_.begin(), works_.end(), [](const WorkPtr& work) { return work->is_completed(); });
  }
  std::exception_ptr exception() override {
    if (!is_completed()) return nullptr;
    for (const WorkPtr& work : works_) {
      if (auto error = work->exception()) return error;
    }
    return nullptr;
  }
  std::vector<Tensor> result() override {
    std::vector<Tensor> outputs;
    for (const WorkPtr& work : works_) {
      const auto part = work->result();
      outputs.insert(outputs.end(), part.begin(), part.end());
    }
    return outputs;
  }
  OpType op_type() const override { return works_.empty() ? OpType::barrier : works_.back()->op_type(); }
  std::uint64_t sequence_number() const override { return works_.empty() ? 0 : works_.back()->sequence_number(); }
  Clock::time_point time_started() const override { return works_.empty() ? created_ : works_.front()->time_started(); }
  Clock::time_point time_finished() const override {
    Clock::time_point last = created_;
    for (const WorkPtr& work : works_) last = std::max(last, work->time_finished());
    return last;
  }

 private:
  const std::vector<WorkPtr> works_;
  const Clock::time_point created_ = Clock::now();
};

}  // namespace

void Coalescing::start() {
  const std::lock_guard lock(mutex_);
  if (active()) throw InvalidArgument("start_coalescing: coalescing is already active; call end_coalescing first");
  active_.store(true, std::memory_order_relaxed);
}

void Coalescing::add(const WorkPtr& work) {
  const std::lock_guard lock(mutex_);
  if (active()) works_.push_back(work);
}

WorkPtr Coalescing::end() {
  const std::lock_guard lock(mutex_);
  if (!active()) throw InvalidArgument("end_coalescing: coalescing is not active; call start_coalescing first");
  active_.store(false, std::memory_order_relaxed);
  return std::make_shared<CoalescedWork>(std::exchange(works_, {}));
}

}  // namespace hookline
