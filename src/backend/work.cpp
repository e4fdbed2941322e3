// The Work interface, and a Work that wraps a future.
#include <hookline/backend/work.hpp>

#include <atomic>
#include <utility>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

class FutureWork final : public Work {
 public:
  FutureWork(Future<std::vector<Tensor>> future, OpType type, std::uint64_t sequence)
      : future_(std::move(future)), type_(type), sequence_(sequence) {}

  /// Records the finish time when the future completes. Call when a shared_ptr owns the work.
  void record_finish_time() {
    future_.on_done([self = std::static_pointer_cast<FutureWork>(shared_from_this())] {
      self->finished_.store(Clock::now(), std::memory_order_release);
    });
  }

  void wait(std::optional<Milliseconds> timeout) override { future_.wait(timeout.value_or(kDefaultTimeout)); }
  Future<std::vector<Tensor>> get_future() override { return future_; }
  bool is_completed() override { return future_.done(); }
  std::exception_ptr exception() override { return future_.error(); }
  std::vector<Tensor> result() override {
    if (!future_.done()) throw InvalidArgument("Work::result: the operation is not complete. Call wait() first.");
    return future_.value();
  }
  OpType op_type() const override { return type_; }
  std::uint64_t sequence_number() const override { return sequence_; }
  Clock::time_point time_started() const override { return started_; }
  Clock::time_point time_finished() const override {
    const Clock::time_point recorded = finished_.load(std::memory_order_acquire);
    return recorded == Clock::time_point() ? Clock::now()
                                           : recorded;  // on_done may run slightly after done() turns true
  }

 private:
  const Future<std::vector<Tensor>> future_;
  const OpType type_;
  const std::uint64_t sequence_;
  const Clock::time_point started_ = Clock::now();
  std::atomic<Clock::time_point> finished_{};
};

}  // namespace

Work::~Work() = default;

void Work::on_complete(Task callback, Urgency) { get_future().on_done(std::move(callback)); }

WorkPtr make_work(Future<std::vector<Tensor>> future, OpType type, std::uint64_t sequence_number) {
  auto work = std::make_shared<FutureWork>(std::move(future), type, sequence_number);
  work->record_finish_time();
  return work;
}

}  // namespace hookline
