// The names of the room core in use: element types, shapes, time, futures, threads, errors, and what a call belongs to.
#include <atomic>
#include <cstdio>
#include <memory>
#include <tuple>
#include <vector>

#include <hookline/hookline.hpp>

#include "expect.hpp"
namespace hl = hookline;

namespace {

void elements_and_shapes() {
  expect(hl::dtype_of<float> == hl::DType::f32 && hl::size_of(hl::DType::bf16) == 2 && is_floating(hl::DType::bf16));
  expect(hl::parse_dtype("bfloat16") == hl::DType::bf16 && name(hl::DType::bf16) == "bfloat16");
  expect(float(hl::Float16(0.1f)) != 0.1f && float(hl::BFloat16(0.5f)) == 0.5f);  // sixteen bits, rounded to nearest
  // One function for all types of elements.
  expect(hl::visit_dtype(hl::DType::i16, [](auto element) { return sizeof element; }) == 2);
  hl::check(hl::ReduceOp::avg, hl::DType::f32);  // throws for a reduction that these elements cannot have

  hl::Dims shape = {2, 3};
  shape.push_back(4);
  expect(to_string(shape) == "[2, 3, 4]" && shape.size() <= hl::kMaxDims);
  expect(hl::Tensor::zeros(shape).numel() == 24);
}

void time() {
  const hl::Clock::time_point deadline = hl::deadline_after(hl::Milliseconds(50));
  expect(hl::time_left(deadline) <= hl::Milliseconds(50));
  expect(hl::kDefaultTimeout == std::chrono::minutes(30));
  // Whoever has no limit gets this one.
  expect(hl::time_left(hl::deadline_after(hl::Milliseconds::max())) <= hl::kLongestTimeout);
}

/// An executor says where continuations run: this one, in the thread that completes the future.
class AtOnce final : public hl::Executor {
 public:
  void post(hl::Task task) override { task(); }
};

void futures() {
  const auto doubled = [](const hl::Future<int>& value) { return 2 * value.value(); };
  hl::Promise<int> here(std::make_shared<AtOnce>());
  hl::Promise<int> elsewhere(std::make_shared<hl::ThreadExecutor>("elsewhere"));  // a thread of its own
  const auto first = here.get_future().then(doubled);
  const auto second = elsewhere.get_future().then(doubled);
  here.set_value(1);
  expect(first.value() == 2);
  elsewhere.set_value(2);
  expect(hl::when_all(std::vector{first, second}).wait() == std::vector{2, 4});
  expect(std::get<0>(hl::when_all(first, hl::Future<void>::ready()).wait()) == 2);
}

/// A wait that Ctrl-C ends, in an interpreter that has put a scope around its native calls.
void wait_in_pieces(const hl::Future<int>& future) {
  while (!future.done()) {
    hl::check_interrupt();
    try {
      future.wait(hl::kInterruptPeriod);
    } catch (const hl::Timeout&) {
      continue;
    }
  }
}

void interrupts() {
  const hl::InterruptScope scope([] { throw hl::Aborted("Ctrl-C"); });
  const hl::Promise<int> never;
  try {
    wait_in_pieces(never.get_future());
    expect(false);
  } catch (const hl::Aborted& error) {
    std::printf("a wait was ended by %s\n", error.what());
  }
}

void contexts() {
  // What operations of this thread belong to: a lane, a note for error texts, and a counter of the bytes that they
  // send.
  const hl::CallContext context = {.lane = 3, .note = 7, .sent = std::make_shared<std::atomic<std::uint64_t>>(0)};
  const hl::ContextScope scope(context);
  expect(hl::current_context().note == 7 && hl::current_context().lane == 3);
}

void errors() {
  try {
    hl::Tensor::zeros({-1});
    expect(false);
  } catch (
      const hl::InvalidArgument&) {  // as Unsupported, Timeout, PeerLost, Mismatch, Aborted, ResourceError: an Error
    const hl::Error error("no tensor could be made", std::current_exception());
    std::printf("%s\n", hl::describe(std::make_exception_ptr(error)).c_str());  // with its cause in the second line
  }
}

}  // namespace

int main() {
  elements_and_shapes();
  time();
  futures();
  interrupts();
  contexts();
  errors();
}
